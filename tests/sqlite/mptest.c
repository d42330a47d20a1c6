/* SQLite's mptest with the extension loaded, which SUITE_EXTENSION names. */
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>

int mptest_main(int count, char **arguments);

int main(int count, char **arguments) {
    sqlite3 *first;
    char *message = 0;
    sqlite3_open(":memory:", &first);
    sqlite3_enable_load_extension(first, 1);
    if (sqlite3_load_extension(first, getenv("SUITE_EXTENSION"), 0, &message)) {
        fprintf(stderr, "the extension cannot be loaded: %s\n", message);
        return 1;
    }
    sqlite3_close(first);
    return mptest_main(count, arguments);
}
