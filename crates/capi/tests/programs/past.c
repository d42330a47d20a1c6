/* The past, commits of parts, and sides in conflicts: past STORE embedded|service */
#include "store.h"

static void expect_changes(atomdir_changes *changes, const char *expected)
{
    struct atomdir_change change;
    char seen[256] = "";

    while (atomdir_changes_next(changes, &change) == 1) {
        size_t used = strlen(seen);
        snprintf(seen + used, sizeof seen - used, "%c %s;", change.letter, change.path);
    }
    CHECK(strcmp(seen, expected) == 0);
    atomdir_changes_close(changes);
}

/* Lists commits, their changes, and the differences between them. */
static void commits(void)
{
    const char *const paths[] = {"shown", NULL}, *const outside[] = {"../shown", NULL};
    struct atomdir_commit_info commit;
    struct timespec time = {0, 0};
    atomdir_changes *changes;
    atomdir_log *log;
    uint64_t one = commit_file("shown", "one"), two = commit_file("beside", "two"), found;

    CHECK(atomdir_log_of(store, paths, 0, 10, &log) == 0);
    CHECK(atomdir_log_next(log, &commit) == 1 && commit.sequence == one);
    CHECK(atomdir_log_next(log, &commit) == 0);
    atomdir_log_close(log);
    CHECK(atomdir_log_of(store, NULL, two, 1, &log) == 0);
    CHECK(atomdir_log_next(log, &commit) == 1 && commit.sequence == one);
    atomdir_log_close(log);
    CHECK(atomdir_log_of(store, outside, 0, 10, &log) == ATOMDIR_EREFUSED);

    CHECK(atomdir_show(store, two, &commit, &changes) == 0);
    CHECK(commit.sequence == two && strcmp(commit.label, "test") == 0);
    expect_changes(changes, "A beside;");
    CHECK(atomdir_show(store, 1000000, NULL, &changes) == ATOMDIR_ENOTKEPT);

    commit_file("shown", "three");
    CHECK(atomdir_diff(store, one, ATOMDIR_NOW, &changes) == 0);
    CHECK(atomdir_conflict_count() == 0);
    expect_changes(changes, "A beside;M shown;");
    CHECK(atomdir_diff(store, two, one, &changes) == 0);
    expect_changes(changes, "D beside;");
    CHECK(atomdir_diff(store, 1000000, ATOMDIR_NOW, &changes) == ATOMDIR_ENOTKEPT);

    CHECK(atomdir_commit_at(store, &commit.time, &found) == 0 && found == two);
    CHECK(atomdir_commit_at(store, &time, &found) == 0 && found == 0);
    CHECK(atomdir_commit_at(store, NULL, &found) == -EINVAL);
    time.tv_nsec = 1000000000;
    CHECK(atomdir_commit_at(store, &time, &found) == -EINVAL);
}

static void past(void)
{
    struct atomdir_commit_info commit;
    struct atomdir_conflict conflict;
    atomdir_log *log;
    const char *const paths[] = {"past", NULL}, *const none[] = {"none", NULL};
    uint64_t one = commit_file("past", "one"), two = commit_file("past", "two"), three = 1000000;
    char path[4096];
    FILE *file;

    CHECK(atomdir_log_open(store, 1, &log) == 0);
    CHECK(atomdir_log_next(log, &commit) == 1);
    CHECK(commit.sequence == two && commit.user == geteuid() && commit.changes == 1);
    CHECK(strcmp(commit.label, "test") == 0 && commit.time.tv_sec > 0);
    CHECK(atomdir_log_next(log, &commit) == 0);
    atomdir_log_close(log);
    CHECK(atomdir_at(store, one, 0, &tx) == 0);
    expect_file(tx, "past", "one");
    CHECK(atomdir_write_file(tx, "past", "x", 1) == -EROFS);
    CHECK(atomdir_commit(tx, NULL) < 0);
    atomdir_abort(tx);
    CHECK(atomdir_at(store, three, 0, &tx) == ATOMDIR_ENOTKEPT);
    CHECK(atomdir_at(store, one, 99, &tx) == -EINVAL);
    CHECK(atomdir_undo(store, &two, 1, NULL, &tx) == 0);
    CHECK(atomdir_commit(tx, NULL) == 0);
    CHECK(atomdir_undo(store, &two, 1, paths, &tx) == ATOMDIR_EREFUSED);
    CHECK(atomdir_undo(store, &one, 1, paths, &tx) == 0);
    atomdir_abort(tx);
    commit_file("past", "one again");
    CHECK(atomdir_undo(store, &one, 1, paths, &tx) == ATOMDIR_ECHANGED);
    CHECK(atomdir_conflict_count() == 1);
    CHECK(atomdir_undo(store, NULL, 1, paths, &tx) == -EINVAL);
    CHECK(atomdir_restore(store, two, paths, &tx) == 0);
    expect_file(tx, "past", "two");
    CHECK(atomdir_commit(tx, NULL) == 0);
    CHECK(atomdir_restore(store, two, none, &tx) == ATOMDIR_ENOTKEPT);
    /* The past state of a file is lost once an outside writer has overwritten it. */
    begin();
    CHECK(atomdir_chmod(tx, "past", 0600) == 0);
    CHECK(atomdir_commit(tx, NULL) == 0);
    snprintf(path, sizeof path, "%s/past", atomdir_root(store));
    file = fopen(path, "w");
    CHECK(file != NULL && fputs("outside", file) >= 0 && fclose(file) == 0);
    CHECK(atomdir_at(store, two, 0, &tx) == ATOMDIR_ECHANGED);
    CHECK(atomdir_at(store, two, ATOMDIR_OUTSIDE_AS_NOW, &tx) == 0);
    CHECK(atomdir_conflict_count() >= 1 && atomdir_conflict_at(0, &conflict) == 0);
    CHECK(conflict.by == ATOMDIR_BY_OUTSIDE && strcmp(conflict.path, "past") == 0);
    CHECK(conflict.time.tv_sec == 0);
    expect_file(tx, "past", "outside");
    atomdir_abort(tx);
}

static void parts_and_sides(void)
{
    const char *const done[] = {"done", NULL}, *const dropped[] = {"dropped", NULL};
    atomdir_changes *changes;
    struct atomdir_conflict conflict;
    atomdir_tx *mine;
    uint64_t sequence = 0;
    int sides[8], directory;
    ssize_t count, index;

    begin();
    CHECK(atomdir_write_file(tx, "done", "1", 1) == 0);
    CHECK(atomdir_write_file(tx, "dropped", "2", 1) == 0);
    CHECK(atomdir_commit_part(tx, done, &sequence) == 0 && sequence > 0);
    CHECK(atomdir_commit_part(tx, done, &sequence) < 0);
    directory = atomdir_view_directory(tx);
    if (atomdir_is_embedded(store)) {
        CHECK(directory == -EOPNOTSUPP);
    } else {
        CHECK(directory >= 0 && faccessat(directory, "dropped", R_OK, 0) == 0);
        CHECK(close(directory) == 0);
    }
    CHECK(atomdir_write_file(tx, "stays", "3", 1) == 0);
    CHECK(atomdir_abort_part(tx, dropped) == 0);
    CHECK(atomdir_abort_part(tx, dropped) == ATOMDIR_EREFUSED);
    CHECK(atomdir_changes_open(tx, &changes) == 0);
    expect_changes(changes, "A stays;");
    atomdir_abort(tx);

    begin();
    mine = tx;
    CHECK(atomdir_write_file(mine, "past", "mine", 4) == 0);
    CHECK(atomdir_write_file(mine, "done", "mine", 4) == 0);
    commit_file("past", "theirs");
    commit_file("done", "theirs");
    count = atomdir_list_conflicts(mine);
    CHECK(count >= 2 && count <= 8 && (size_t)count == atomdir_conflict_count());
    for (index = 0; index < count; index++) {
        CHECK(atomdir_conflict_at(index, &conflict) == 0);
        CHECK(conflict.by == ATOMDIR_BY_COMMIT && conflict.time.tv_sec > 0);
        sides[index] = strcmp(conflict.path, "done") == 0 ? ATOMDIR_MINE : ATOMDIR_THEIRS;
    }
    CHECK(atomdir_commit_with_sides(mine, sides, count - 1, NULL) == ATOMDIR_ECONFLICT);
    /* A change that was made after the list is not overwritten. */
    commit_file("done", "later");
    CHECK(atomdir_commit_with_sides(mine, sides, count, NULL) == ATOMDIR_ECONFLICT);
    CHECK(atomdir_list_conflicts(mine) == count);
    CHECK(atomdir_commit_with_sides(mine, sides, count, &sequence) == 0 && sequence > 0);
    begin();
    expect_file(tx, "past", "theirs");
    expect_file(tx, "done", "mine");
    atomdir_abort(tx);
}

/* In one text the two sides have changed different lines, in the other text the same line. */
static void merges(void)
{
    struct atomdir_conflict conflict;
    atomdir_texts *texts;
    atomdir_tx *mine;
    const void *data;
    size_t size;
    int sides[8];
    ssize_t count, index;

    commit_file("text", "1\n2\n3\n");
    commit_file("clash", "1\n");
    begin();
    mine = tx;
    CHECK(atomdir_write_file(mine, "text", "1\n2\nmine\n", 9) == 0);
    CHECK(atomdir_write_file(mine, "clash", "mine\n", 5) == 0);
    commit_file("text", "theirs\n2\n3\n");
    commit_file("clash", "theirs\n");
    count = atomdir_list_conflicts(mine);
    CHECK(count >= 2 && count <= 8);
    for (index = 0; index < count; index++)
        sides[index] = ATOMDIR_MERGE;
    CHECK(atomdir_commit_with_sides(mine, sides, count, NULL) == ATOMDIR_ECONFLICT);
    CHECK(strstr(atomdir_message(), "'clash'") != NULL);
    CHECK(atomdir_conflict_count() == 1 && atomdir_conflict_at(0, &conflict) == 0);
    CHECK(strcmp(conflict.path, "clash") == 0 && strstr(conflict.description, "same lines") != NULL);
    expect_file(mine, "text", "1\n2\nmine\n");
    CHECK(atomdir_list_conflicts(mine) == count);
    CHECK(atomdir_texts_open(mine, count, &texts) == -EINVAL);
    CHECK(atomdir_list_conflicts(mine) == count);
    for (index = 0; index < count; index++) {
        CHECK(atomdir_conflict_at(index, &conflict) == 0);
        CHECK(atomdir_texts_open(mine, index, &texts) == 0);
        CHECK(atomdir_texts_get(texts, ATOMDIR_TEXT_THEIRS, &data, &size) == 0);
        CHECK(size >= 7 && memcmp(data, "theirs\n", 7) == 0);
        CHECK(atomdir_texts_get(texts, ATOMDIR_TEXT_MERGED, &data, &size) ==
              (strcmp(conflict.path, "clash") == 0));
        CHECK(size > 0 && atomdir_texts_get(texts, 5, &data, &size) == -EINVAL);
        atomdir_texts_close(texts);
        CHECK(atomdir_list_conflicts(mine) == count);
        CHECK(atomdir_conflict_at(index, &conflict) == 0);
        sides[index] = strcmp(conflict.path, "text") == 0 ? ATOMDIR_MERGE : ATOMDIR_THEIRS;
    }
    CHECK(atomdir_commit_with_sides(mine, sides, count, NULL) == 0);
    begin();
    expect_file(tx, "text", "theirs\n2\nmine\n");
    expect_file(tx, "clash", "theirs\n");
    atomdir_abort(tx);
}

/* Settings of the history, and pruning. */
static void settings(void)
{
    struct atomdir_history history;
    char value[8];
    uint64_t sequence = commit_file("pruned", "1");

    CHECK(atomdir_prune(store, 86400, &history) == 1);
    CHECK(history.commits > 0 && history.oldest > 0 && history.oldest_time.tv_sec > 0);
    CHECK(atomdir_prune(store, 0, &history) == 1);
    CHECK(history.commits == 0 && history.oldest == 0);
    CHECK(atomdir_undo(store, &sequence, 1, NULL, &tx) == ATOMDIR_ENOTKEPT);
    CHECK(atomdir_setting(store, "history-age", value, sizeof value) == 2);
    CHECK(strcmp(value, "7d") == 0);
    CHECK(atomdir_set_setting(store, "history-age", "never") == -EINVAL);
    CHECK(atomdir_set_setting(store, "history-age", "off") == 0);
    CHECK(atomdir_setting(store, "history-age", NULL, 0) == 3);
    CHECK(atomdir_setting(store, "history-age", value, 3) == -ERANGE);
    /* The setting is in effect. */
    sequence = commit_file("pruned", "2");
    CHECK(atomdir_undo(store, &sequence, 1, NULL, &tx) == ATOMDIR_ENOTKEPT);
    CHECK(atomdir_prune(store, -1, &history) == 0 && history.commits == 0);
    CHECK(atomdir_set_setting(store, "history-age", "") == 0);
    CHECK(atomdir_setting(store, "history-age", value, sizeof value) == 2);
    CHECK(atomdir_setting(store, "none", value, sizeof value) == -EINVAL);
}

/* Transactions stay open only with a service. */
static void kept(void)
{
    struct atomdir_transaction_info open;
    atomdir_transactions *list;
    atomdir_ended *ended;
    uint64_t id = 0;

    begin();
    CHECK(atomdir_write_file(tx, "kept", "1", 1) == 0);
    if (atomdir_is_embedded(store)) {
        CHECK(atomdir_keep(tx, &id) == ATOMDIR_EREFUSED);
        CHECK(atomdir_tx_sync(tx) == ATOMDIR_EREFUSED);
        atomdir_abort(tx);
        CHECK(atomdir_attach(store, 1, &tx) == ATOMDIR_EREFUSED);
        CHECK(atomdir_transactions_open(store, &list) == ATOMDIR_EREFUSED);
        CHECK(atomdir_ended_open(store, &ended) == ATOMDIR_EREFUSED);
        return;
    }
    CHECK(atomdir_tx_sync(tx) < 0); /* it ends with this program, so there is nothing to sync */
    CHECK(atomdir_keep(tx, &id) == 0 && id > 0);
    CHECK(atomdir_transactions_open(store, &list) == 0);
    CHECK(atomdir_transactions_next(list, &open) == 1);
    CHECK(open.id == id && open.user == geteuid() && strcmp(open.label, "test") == 0);
    CHECK(open.began.tv_sec > 0 && open.survives == 1);
    CHECK(atomdir_transactions_next(list, &open) == 0);
    atomdir_transactions_close(list);
    CHECK(atomdir_attach(store, id, &tx) == 0);
    expect_file(tx, "kept", "1");
    CHECK(atomdir_tx_sync(tx) == 0);
    CHECK(atomdir_keep(tx, NULL) == 0);
    CHECK(atomdir_attach(store, id, &tx) == 0);
    CHECK(atomdir_commit(tx, NULL) == 0);
    begin();
    expect_file(tx, "kept", "1");
    atomdir_abort(tx);
    CHECK(atomdir_attach(store, id, &tx) < 0);
}

int main(int argc, char **argv)
{
    int flags;

    CHECK(argc == 3);
    flags = strcmp(argv[2], "service") == 0 ? ATOMDIR_SERVICE : ATOMDIR_EMBEDDED;
    CHECK(atomdir_open(argv[1], flags, &store) == 0);
    commits();
    past();
    parts_and_sides();
    merges();
    settings();
    kept();
    CHECK(atomdir_close(store) == 0);
    return 0;
}
