/* Commits that take themselves back, pins and labels: annotating STORE embedded|service */
#include "store.h"

static void begin_change(const char *contents)
{
    begin();
    CHECK(atomdir_write_file(tx, "file", contents, strlen(contents)) == 0);
}

static void confirmed(void)
{
    uint64_t one = commit_file("file", "one"), two = 0;
    atomdir_tx *inner;

    begin_change("two");
    CHECK(atomdir_confirm_within(tx, 0) == -EINVAL);
    CHECK(atomdir_confirm_within(tx, 3600000) == 0);
    CHECK(atomdir_commit(tx, &two) == 0);
    CHECK(atomdir_confirm(store, two) == 0);
    CHECK(atomdir_confirm(store, two) == ATOMDIR_ENOTKEPT);
    CHECK(atomdir_confirm(store, one) == ATOMDIR_ENOTKEPT);
    CHECK(strstr(atomdir_message(), "does not wait to be confirmed") != NULL);
    CHECK(atomdir_confirm(store, 1000000) == ATOMDIR_ENOTKEPT);
    CHECK(atomdir_confirm(NULL, one) == -EINVAL);

    begin_change("three");
    CHECK(atomdir_confirm_within(tx, INT64_MAX) == 0);
    CHECK(atomdir_confirm_within(tx, -1) == 0);
    CHECK(atomdir_nest(tx, &inner) == 0);
    CHECK(atomdir_confirm_within(inner, 1000) == ATOMDIR_EREFUSED);
    atomdir_abort(inner);
    CHECK(atomdir_commit(tx, &two) == 0);
    CHECK(atomdir_confirm(store, two) == ATOMDIR_ENOTKEPT);
    begin();
    expect_file(tx, "file", "three");
    atomdir_abort(tx);
}

static int says(const char *expected)
{
    void *data;
    size_t size;
    int equal;

    begin();
    CHECK(atomdir_read_file(tx, "file", &data, &size) == 0);
    atomdir_abort(tx);
    equal = strcmp((char *)data, expected) == 0;
    atomdir_free(data);
    return equal;
}

static void taken_back(void)
{
    uint64_t lost = 0;

    commit_file("file", "old");
    begin_change("new");
    CHECK(atomdir_confirm_within(tx, 50) == 0);
    CHECK(atomdir_commit(tx, &lost) == 0);
    while (!says("old"))
        usleep(20000);
    CHECK(atomdir_confirm(store, lost) == ATOMDIR_EREFUSED);
}

static void pinned(void)
{
    struct atomdir_commit_info commit;
    struct atomdir_history history;
    atomdir_changes *changes;
    uint64_t one = commit_file("pinned", "one"), two = commit_file("pinned", "two");

    CHECK(atomdir_pin(store, two, 2) == -EINVAL);
    CHECK(atomdir_pin(store, two, 1) == 0);
    CHECK(atomdir_prune(store, 0, &history) == 1 && history.commits == 1);
    CHECK(atomdir_pin(store, one, 1) == ATOMDIR_ENOTKEPT);
    CHECK(atomdir_undo(store, &two, 1, NULL, &tx) == 0);
    atomdir_abort(tx);
    CHECK(atomdir_pin(store, two, 0) == 0);
    CHECK(atomdir_prune(store, 0, &history) == 1 && history.commits == 0);
    CHECK(atomdir_pin(store, two, 1) == ATOMDIR_ENOTKEPT);

    CHECK(atomdir_relabel(store, one, "another label") == 0);
    CHECK(atomdir_show(store, one, &commit, &changes) == 0);
    CHECK(strcmp(commit.label, "another label") == 0);
    atomdir_changes_close(changes);
    CHECK(atomdir_relabel(store, one, NULL) == -EINVAL);
    CHECK(atomdir_relabel(store, 1000000, "none") == ATOMDIR_ENOTKEPT);
}

int main(int argc, char **argv)
{
    int flags;

    CHECK(argc == 3);
    flags = strcmp(argv[2], "service") == 0 ? ATOMDIR_SERVICE : ATOMDIR_EMBEDDED;
    CHECK(atomdir_open(argv[1], flags, &store) == 0);
    confirmed();
    taken_back();
    pinned();
    CHECK(atomdir_close(store) == 0);
    return 0;
}
