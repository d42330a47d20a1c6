/* SQLite runs this at the end of sqlite3_initialize(), in each process of its tests: it makes the
   file system "atomdir" the default one. SUITE_EXTENSION names the extension. */
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>

int suite_init(const char *unused) {
    static sqlite3 *keeper;
    sqlite3 *first;
    char *message = 0;
    const char *extension = getenv("SUITE_EXTENSION");
    const char *keeper_name = getenv("SUITE_KEEPER");
    (void)unused;
    if (!extension) return SQLITE_OK;
    sqlite3_open(":memory:", &first);
    sqlite3_enable_load_extension(first, 1);
    if (sqlite3_load_extension(first, extension, 0, &message)) {
        fprintf(stderr, "the extension cannot be loaded: %s\n", message);
        exit(1);
    }
    sqlite3_close(first);
    sqlite3_vfs_register(sqlite3_vfs_find("atomdir"), 1);
    /* Opening a store takes a while, so one connection keeps it open. */
    if (keeper_name && !keeper) sqlite3_open(keeper_name, &keeper);
    return SQLITE_OK;
}
