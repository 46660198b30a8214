//! The guide's code compiles and runs.

/// One page of the guide as documentation, so that its code is a test.
macro_rules! page {
    ($name:ident, $path:literal) => {
        #[doc = include_str!(concat!("../../../docs/guide/", $path))]
        struct $name;
    };
}

page!(QuickStart, "quick-start.md");
page!(Deployment, "deployment.md");
page!(Options, "options.md");
page!(Query, "query.md");
page!(Isolation, "isolation.md");
page!(Errors, "errors.md");
page!(Cache, "cache.md");
page!(LogDevices, "log-devices.md");
page!(StoreDevices, "store-devices.md");
page!(ArchiveAndBackup, "archive-and-backup.md");
page!(Command, "command.md");
