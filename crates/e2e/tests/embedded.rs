//! Commands beside a program that has the store open in its own process.

use atomdir::{Door, OpenError, StoreOptions};
use atomdir_testing::Fixture;
use atomdir_testing::exit_code::CANNOT_CREATE;

#[test]
fn commands_name_the_program_that_has_the_store_open() {
    let fixture = Fixture::new("embedded-held", "echo old > a");
    let store = StoreOptions::new()
        .door(Door::Embedded)
        .open(&fixture.base)
        .expect("the store opens");
    let holder = format!("process {} (", std::process::id());
    for command in [&["begin"][..], &["run", "--", "true"], &["recover"]] {
        let refused = fixture.store.call(command).expect(CANNOT_CREATE);
        let message = String::from_utf8_lossy(&refused.stderr);
        assert!(message.contains(&holder), "{command:?}: {refused}");
    }
    store.close().expect("closed");
    fixture.store.run("echo new > a").expect(0);
    // Now the service has it.
    let refused = StoreOptions::new()
        .door(Door::Embedded)
        .open(&fixture.base)
        .expect_err("the service has it");
    let OpenError::Held { holder, .. } = &refused else {
        panic!("{refused}");
    };
    let service = fixture.store.service_processes();
    let holder = holder.as_ref().expect("it is found");
    let is_it = |process: &rustix::process::Pid| {
        process.as_raw_nonzero().get().unsigned_abs() == holder.process
    };
    assert!(service.iter().any(is_it), "{refused}: {service:?}");
    fixture.store.assert_at_rest();
}
