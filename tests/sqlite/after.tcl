# SQLite's tester.tcl reads this at its end. A failed test is named on a line of its own.
rename fail_test fail_test_of_sqlite
proc fail_test {name} {
  puts "\nFAILED $name"
  fail_test_of_sqlite $name
}
