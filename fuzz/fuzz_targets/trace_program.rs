//! The file of a program trace: an error in one line, or steps that are the same after writing them.
#![no_main]

use flashvm_sim::ProgramTrace;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    match ProgramTrace::read(bytes) {
        Ok(trace) => {
            let mut file = Vec::new();
            trace.write(&mut file).expect("memory takes it");
            assert!(ProgramTrace::read(&file[..]).is_ok_and(|again| again == trace));
        }
        Err(damage) => assert_eq!(damage.to_string().lines().count(), 1),
    }
});
