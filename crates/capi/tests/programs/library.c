/* Together with past.c and here.c, uses all functions of atomdir.h: library STORE embedded|service */
#include "store.h"
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>

static void contents(void)
{
    void *data;
    size_t size;
    char buffer[16];
    struct stat stat;
    atomdir_file *file;

    begin();
    CHECK(atomdir_id(tx) > 0);
    CHECK((atomdir_view(tx) == NULL) == (atomdir_is_embedded(store) == 1));
    CHECK(atomdir_write_file(tx, "a", "one", 3) == 0);
    CHECK(atomdir_read_file(tx, "a", &data, &size) == 0);
    CHECK(size == 3 && strcmp((char *)data, "one") == 0);
    atomdir_free(data);
    CHECK(atomdir_write_file(tx, "empty", NULL, 0) == 0);
    CHECK(atomdir_file_open(tx, "a", O_RDWR, 0, &file) == 0);
    CHECK(atomdir_pwrite(file, "XY", 2, 5) == 2);
    CHECK(atomdir_pread(file, buffer, sizeof buffer, 0) == 7);
    CHECK(memcmp(buffer, "one\0\0XY", 7) == 0);
    CHECK(atomdir_ftruncate(file, 4) == 0);
    CHECK(atomdir_fstat(file, &stat) == 0 && stat.st_size == 4);
    /* A transaction with an open file cannot be committed. */
    CHECK(atomdir_commit(tx, NULL) == ATOMDIR_EINUSE);
    CHECK(atomdir_file_close(file) == 0);
    CHECK(atomdir_file_open(tx, "log", O_WRONLY | O_APPEND | O_CREAT | O_EXCL, 0600, &file) == 0);
    CHECK(atomdir_append(file, "1\n", 2) == 2);
    CHECK(atomdir_append(file, "2\n", 2) == 2);
    CHECK(atomdir_pread(file, buffer, 1, 0) == -EBADF);
    CHECK(atomdir_file_close(file) == 0);
    CHECK(atomdir_file_open(tx, "log", O_WRONLY | O_CREAT | O_EXCL, 0600, &file) == -EEXIST);
    CHECK(atomdir_file_open(tx, "a", O_RDONLY | O_DIRECTORY, 0, &file) == -EINVAL);
    CHECK(atomdir_commit(tx, NULL) == 0);
}

static void names(void)
{
    struct atomdir_entry entry;
    struct stat stat;
    struct timespec times[2] = {{0, UTIME_OMIT}, {-5, 7}};
    atomdir_dir *dir;
    char buffer[64];

    begin();
    CHECK(atomdir_mkdir(tx, "d", 0755) == 0);
    CHECK(atomdir_mkdir(tx, "d", 0755) == -EEXIST);
    CHECK(atomdir_rename(tx, "a", "d/a", 0) == 0);
    CHECK(atomdir_rename(tx, "log", "d/a", ATOMDIR_NOREPLACE) == -EEXIST);
    CHECK(atomdir_rename(tx, "log", "d/a", ATOMDIR_EXCHANGE) == 0);
    CHECK(atomdir_link(tx, "d/a", "hard") == 0);
    CHECK(atomdir_symlink(tx, "d/a", "soft") == 0);
    CHECK(atomdir_readlink(tx, "soft", buffer, sizeof buffer) == 3);
    CHECK(strcmp(buffer, "d/a") == 0);
    CHECK(atomdir_readlink(tx, "soft", buffer, 3) == -ERANGE);
    CHECK(atomdir_stat(tx, "soft", &stat) == 0);
    CHECK(S_ISREG(stat.st_mode) && stat.st_nlink == 2 && stat.st_size == 4);
    CHECK(atomdir_lstat(tx, "soft", &stat) == 0 && S_ISLNK(stat.st_mode));
    CHECK(atomdir_chmod(tx, "soft", 0640) == 0);
    CHECK(atomdir_chown(tx, "hard", (uid_t)-1, getgid()) == 0);
    CHECK(atomdir_utimens(tx, "hard", times) == 0);
    CHECK(atomdir_stat(tx, "d/a", &stat) == 0);
    CHECK((stat.st_mode & 07777) == 0640);
    CHECK(stat.st_mtim.tv_sec == -5 && stat.st_mtim.tv_nsec == 7);
    CHECK(atomdir_setxattr(tx, "hard", "user.x", "value", 5) == 0);
    CHECK(atomdir_getxattr(tx, "hard", "user.x", NULL, 0) == 5);
    CHECK(atomdir_getxattr(tx, "hard", "user.x", buffer, sizeof buffer) == 5);
    CHECK(atomdir_getxattr(tx, "hard", "user.none", NULL, 0) == -ENODATA);
    CHECK(atomdir_listxattr(tx, "hard", buffer, sizeof buffer) == 7);
    CHECK(strcmp(buffer, "user.x") == 0);
    CHECK(atomdir_removexattr(tx, "hard", "user.x") == 0);
    CHECK(atomdir_dir_open(tx, "d", &dir) == 0);
    CHECK(atomdir_dir_next(dir, &entry) == 1);
    CHECK(strcmp(entry.name, "a") == 0 && entry.type == S_IFREG);
    CHECK(atomdir_dir_next(dir, &entry) == 0);
    atomdir_dir_close(dir);
    CHECK(atomdir_rmdir(tx, "d") == -ENOTEMPTY);
    CHECK(atomdir_remove_all(tx, "d") == 0);
    CHECK(atomdir_mkdir(tx, "e", 0755) == 0 && atomdir_rmdir(tx, "e") == 0);
    CHECK(atomdir_unlink(tx, "none") == -ENOENT);
    CHECK(strstr(atomdir_message(), "none") != NULL);
    CHECK(atomdir_unlink(tx, "../up") == -EXDEV);
    CHECK(atomdir_unlink(tx, NULL) == -EINVAL);
    CHECK(atomdir_unlink(NULL, "a") == -EINVAL);
    atomdir_abort(tx);
}

/* One transaction reads the first page of a file, and another one changes the second: no conflict. */
static void own_reads(void)
{
    static char pages[8192];
    atomdir_tx *reader;
    atomdir_file *file;
    char byte;

    begin();
    CHECK(atomdir_write_file(tx, "pages", pages, sizeof pages) == 0);
    CHECK(atomdir_commit(tx, NULL) == 0);
    CHECK(atomdir_begin(store, ATOMDIR_SERIALIZABLE | ATOMDIR_OWN_READS, NULL, &reader) == 0);
    CHECK(atomdir_file_open(reader, "pages", O_RDONLY, 0, &file) == 0);
    CHECK(atomdir_pread(file, &byte, 1, 0) == 1);
    CHECK(atomdir_file_close(file) == 0);
    CHECK(atomdir_write_file(reader, "kept", "1", 1) == 0);
    begin();
    CHECK(atomdir_file_open(tx, "pages", O_WRONLY, 0, &file) == 0);
    CHECK(atomdir_pwrite(file, "1", 1, 4096) == 1);
    CHECK(atomdir_file_close(file) == 0);
    CHECK(atomdir_commit(tx, NULL) == 0);
    CHECK(atomdir_commit(reader, NULL) == 0);
    CHECK(atomdir_begin(store, 32, NULL, &tx) == -EINVAL);
}

static void conflicts(void)
{
    const char *const both[] = {"kept", "a", NULL};
    struct atomdir_conflict conflict;
    atomdir_tx *other;
    uint64_t sequence = 0;

    begin();
    CHECK(atomdir_begin(store, ATOMDIR_LAZY | ATOMDIR_DEFERRED, NULL, &other) != 0);
    CHECK(atomdir_begin(store, ATOMDIR_DEFERRED, NULL, &other) == 0);
    atomdir_abort(other);
    CHECK(atomdir_begin(store, ATOMDIR_SERIALIZABLE | ATOMDIR_LAZY, NULL, &other) == 0);
    CHECK(atomdir_write_file(tx, "a", "mine", 4) == 0);
    CHECK(atomdir_write_file(other, "a", "other", 5) == 0);
    CHECK(atomdir_commit(other, &sequence) == 0 && sequence > 0);
    CHECK(atomdir_sync(store) == 0);
    CHECK(atomdir_commit(tx, NULL) == ATOMDIR_ECONFLICT);
    CHECK(atomdir_conflict_count() > 0);
    CHECK(atomdir_conflict_at(0, &conflict) == 0);
    CHECK(strcmp(conflict.path, "a") == 0 && conflict.by == ATOMDIR_BY_COMMIT);
    CHECK(conflict.commit == sequence && strstr(conflict.description, "'a'") != NULL);
    CHECK(atomdir_conflict_at(1000, &conflict) == -EINVAL);
    atomdir_abort(tx);

    begin();
    CHECK(atomdir_write_file(tx, "kept", "1", 1) == 0);
    CHECK(atomdir_set_savepoint(tx, "here") == 0);
    CHECK(atomdir_write_file(tx, "dropped", "1", 1) == 0);
    CHECK(atomdir_roll_back(tx, "here") == 0);
    CHECK(atomdir_roll_back(tx, "nowhere") == -ENOENT);
    CHECK(atomdir_nest(tx, &other) == 0);
    CHECK(atomdir_write_file(other, "inner", "1", 1) == 0);
    CHECK(atomdir_commit(other, &sequence) == 0 && sequence == 0);
    CHECK(atomdir_lock(tx, "kept", ATOMDIR_SHARED, 0) == 0);
    CHECK(atomdir_lock_all(tx, both, 0, 0) == 0);
    CHECK(atomdir_lock(tx, NULL, 0, 0) == -EINVAL && atomdir_lock_all(tx, NULL, 0, 0) == -EINVAL);
    CHECK(atomdir_begin(store, 0, NULL, &other) == 0);
    CHECK(atomdir_lock(other, "a", ATOMDIR_SHARED, 0) == ATOMDIR_ECONFLICT);
    atomdir_abort(other);
    CHECK(atomdir_commit(tx, NULL) == 0);

    begin();
    CHECK(atomdir_write_file(tx, "common", "1", 1) == 0);
    CHECK(atomdir_fork(tx, NULL) == -EINVAL && atomdir_fork(tx, &other) == 0);
    CHECK(atomdir_write_file(other, "of a fork", "1", 1) == 0);
    atomdir_abort(tx);
    CHECK(atomdir_commit(other, &sequence) == 0 && sequence > 0);

    CHECK(atomdir_begin(store, 64, NULL, &other) == -EINVAL);
    atomdir_abort(NULL);
}

static int tries;

static int count(atomdir_tx *counting, void *argument)
{
    atomdir_tx *other;

    CHECK(argument == &tries);
    CHECK(atomdir_write_file(counting, "a", "counted", 7) == 0);
    if (++tries < 3) {
        CHECK(atomdir_begin(store, 0, NULL, &other) == 0);
        CHECK(atomdir_write_file(other, "a", "between", 7) == 0);
        CHECK(atomdir_commit(other, NULL) == 0);
    }
    return 0;
}

static int refuse(atomdir_tx *refused, void *argument)
{
    (void)argument;
    CHECK(atomdir_unlink(refused, "a") == 0);
    return 17;
}

/* Tries an undo that must fail, since a later commit has changed the same file. */
static int undo(atomdir_tx *unused, void *argument)
{
    atomdir_tx *undoing;

    (void)unused;
    tries++;
    return atomdir_undo(store, (const uint64_t *)argument, 1, NULL, &undoing);
}

static void retries(void)
{
    uint64_t changed_since;

    CHECK(atomdir_run(store, 0, NULL, count, &tries) == 0);
    CHECK(tries == 3);
    CHECK(atomdir_run(store, 0, NULL, refuse, NULL) == 17);
    CHECK(atomdir_run(store, 0, NULL, NULL, NULL) == -EINVAL);
    begin();
    CHECK(atomdir_write_file(tx, "a", "before", 6) == 0);
    CHECK(atomdir_commit(tx, &changed_since) == 0);
    begin();
    CHECK(atomdir_write_file(tx, "a", "since", 5) == 0);
    CHECK(atomdir_commit(tx, NULL) == 0);
    tries = 0;
    CHECK(atomdir_run(store, 0, NULL, undo, &changed_since) == ATOMDIR_ECHANGED);
    CHECK(tries == 1);
}

static void refresh(void)
{
    uint64_t newest = 0, theirs;
    struct atomdir_change change;
    atomdir_changes *changes;
    atomdir_file *file;
    atomdir_tx *mine;

    begin();
    mine = tx;
    CHECK(atomdir_write_file(mine, "mine", "1", 1) == 0);
    theirs = commit_file("theirs", "1");
    CHECK(atomdir_file_open(mine, "mine", O_RDONLY, 0, &file) == 0);
    CHECK(atomdir_refresh(mine, &newest) == ATOMDIR_EINUSE);
    CHECK(atomdir_file_close(file) == 0);
    CHECK(atomdir_refresh(mine, &newest) == 0 && newest == theirs);
    expect_file(mine, "theirs", "1");
    expect_file(mine, "mine", "1");
    CHECK(atomdir_changes_open(mine, &changes) == 0);
    CHECK(atomdir_changes_next(changes, &change) == 1);
    CHECK(change.letter == 'A' && strcmp(change.path, "mine") == 0 && change.old_path == NULL);
    CHECK(atomdir_changes_next(changes, &change) == 0);
    atomdir_changes_close(changes);
    commit_file("mine", "2");
    CHECK(atomdir_refresh(mine, NULL) == ATOMDIR_ECONFLICT);
    atomdir_abort(mine);
}

static pthread_barrier_t barrier;

/* Each of two threads writes, and fails, in one transaction, and gets its own error message. */
static void *in_thread(void *argument)
{
    atomdir_file *shared = (atomdir_file *)argument;
    char name[32], byte = 0;
    int round;

    snprintf(name, sizeof name, "thread-%lx", (unsigned long)pthread_self());
    for (round = 0; round < 100; round++) {
        CHECK(atomdir_unlink(tx, name) == -ENOENT);
        pthread_barrier_wait(&barrier);
        CHECK(strstr(atomdir_message(), name) != NULL);
        CHECK(atomdir_write_file(tx, name, "1", 1) == 0);
        CHECK(atomdir_unlink(tx, name) == 0);
        CHECK(atomdir_pwrite(shared, "1", 1, round) == 1);
        CHECK(atomdir_pread(shared, &byte, 1, round) == 1 && byte == '1');
    }
    return NULL;
}

static void threads(void)
{
    atomdir_file *shared;
    pthread_t other;

    begin();
    CHECK(atomdir_file_open(tx, "shared", O_RDWR | O_CREAT, 0600, &shared) == 0);
    CHECK(pthread_barrier_init(&barrier, NULL, 2) == 0);
    CHECK(pthread_create(&other, NULL, in_thread, shared) == 0);
    in_thread(shared);
    CHECK(pthread_join(other, NULL) == 0);
    CHECK(pthread_barrier_destroy(&barrier) == 0);
    CHECK(atomdir_file_close(shared) == 0);
    CHECK(atomdir_commit(tx, NULL) == 0);
}

static volatile sig_atomic_t alarms;

static void note_alarm(int signal)
{
    (void)signal;
    alarms++;
}

/* Frequent signals interrupt system calls, which the kernel does not restart. */
static void signals(void)
{
    struct itimerval often = {{0, 200}, {0, 200}}, never = {{0, 0}, {0, 0}};
    struct sigaction action;
    char name[32];
    int round = 0;

    memset(&action, 0, sizeof action);
    action.sa_handler = note_alarm;
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
    while (round < 50 || alarms < 50) {
        snprintf(name, sizeof name, "signals-%d", round++);
        begin();
        CHECK(atomdir_mkdir(tx, name, 0700) == 0);
        CHECK(atomdir_rename(tx, name, "signals.d", 0) == 0);
        CHECK(atomdir_chmod(tx, "signals.d", 0755) == 0);
        CHECK(atomdir_rmdir(tx, "signals.d") == 0);
        CHECK(atomdir_write_file(tx, "signals", name, strlen(name)) == 0);
        CHECK(atomdir_commit(tx, NULL) == 0);
    }
    CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
    begin();
    CHECK(atomdir_unlink(tx, "signals") == 0);
    CHECK(atomdir_commit(tx, NULL) == 0);
}

/* A forked child can only free the parent's handles. */
static void forks(void)
{
    atomdir_file *file;
    atomdir_tx *other;
    pid_t child;
    int status;

    begin();
    CHECK(atomdir_write_file(tx, "parent", "1", 1) == 0);
    CHECK(atomdir_file_open(tx, "parent", O_RDWR, 0, &file) == 0);
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(atomdir_write_file(tx, "child", "1", 1) == -ESTALE);
        CHECK(atomdir_pwrite(file, "child", 5, 0) == -ESTALE);
        CHECK(atomdir_file_close(file) == 0);
        CHECK(atomdir_begin(store, 0, NULL, &other) == ATOMDIR_EFORKED);
        CHECK(atomdir_commit(tx, NULL) == ATOMDIR_EFORKED);
        CHECK(atomdir_set_savepoint(tx, "child") < 0);
        atomdir_abort(tx);
        CHECK(atomdir_sync(store) == ATOMDIR_EFORKED);
        atomdir_close(store);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(atomdir_pwrite(file, "2", 1, 0) == 1);
    CHECK(atomdir_file_close(file) == 0);
    CHECK(atomdir_commit(tx, NULL) == 0);
}

int main(int argc, char **argv)
{
    int flags;

    CHECK(argc == 3);
    flags = strcmp(argv[2], "service") == 0 ? ATOMDIR_SERVICE : ATOMDIR_EMBEDDED;
    CHECK(atomdir_message()[0] == '\0');
    CHECK(atomdir_open("/", 0, &store) == ATOMDIR_ENOSTORE);
    CHECK(atomdir_open(argv[1], 99, &store) == -EINVAL);
    CHECK(atomdir_init(argv[1], NULL) == 0);
    CHECK(atomdir_open(argv[1], flags, &store) == 0);
    CHECK(strcmp(atomdir_root(store), argv[1]) == 0);
    CHECK(atomdir_is_embedded(store) == (flags == ATOMDIR_EMBEDDED));
    contents();
    names();
    own_reads();
    conflicts();
    retries();
    refresh();
    threads();
    signals();
    forks();
    begin();
    CHECK(atomdir_hand_over(store) == (flags == ATOMDIR_EMBEDDED ? ATOMDIR_EINUSE : 0));
    atomdir_abort(tx);
    CHECK(atomdir_hand_over(store) == 0 && atomdir_is_embedded(store) == 0);
    /* An open transaction can be used after its store is closed. */
    begin();
    CHECK(atomdir_close(store) == 0);
    CHECK(atomdir_write_file(tx, "last", "1", 1) == 0);
    CHECK(atomdir_commit(tx, NULL) == 0);
    return 0;
}
