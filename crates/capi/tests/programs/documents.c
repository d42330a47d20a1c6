/* The code of docs/c.md and of the head of atomdir.h: documents STORE */
#include "check.h"

#include <err.h>

static const char *directory;

static void example(void)
{
    atomdir_store *store;
    atomdir_tx *tx;

    if (atomdir_init(directory, NULL) < 0 ||
        atomdir_open(directory, 0, &store) < 0 ||
        atomdir_begin(store, 0, "example", &tx) < 0)
        errx(1, "%s", atomdir_message());
    if (atomdir_write_file(tx, "conf/a", "1\n", 2) < 0 ||
        atomdir_rename(tx, "state.new", "state", 0) < 0 ||
        atomdir_commit(tx, NULL) < 0) {
        warnx("%s", atomdir_message());
        atomdir_abort(tx);
    }
    atomdir_close(store);
}

static void upgrade(void)
{
    char path[4096];
    FILE *file;

    snprintf(path, sizeof path, "%s/version", directory);
    file = fopen(path, "w");
    CHECK(file != NULL && fputs("2", file) >= 0 && fclose(file) == 0);
}

static void three_calls(void)
{
    atomdir_begin_here(directory, 0);
    upgrade();                      /* open, write, rename, unlink: unchanged */
    if (atomdir_commit_here() < 0)
        warnx("%s", atomdir_message());
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    directory = argv[1];
    example();
    /* The second time state.new does not exist, so it warns and aborts. */
    example();
    three_calls();
    return 0;
}
