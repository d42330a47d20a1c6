/* The store and the transaction of a test program. */
#include "check.h"

static atomdir_store *store;
static atomdir_tx *tx;

static void begin(void) { CHECK(atomdir_begin(store, 0, "test", &tx) == 0); }

static uint64_t commit_file(const char *name, const char *contents)
{
    uint64_t sequence = 0;

    begin();
    CHECK(atomdir_write_file(tx, name, contents, strlen(contents)) == 0);
    CHECK(atomdir_commit(tx, &sequence) == 0 && sequence > 0);
    return sequence;
}

static void expect_file(atomdir_tx *in, const char *name, const char *expected)
{
    void *data;
    size_t size;

    CHECK(atomdir_read_file(in, name, &data, &size) == 0);
    CHECK(strcmp((char *)data, expected) == 0);
    atomdir_free(data);
}
