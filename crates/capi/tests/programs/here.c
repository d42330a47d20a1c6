/* Three calls around ordinary code: here STORE
 *
 * One thread is in a transaction, and another is not. A process of an ordinary user begins the first
 * transaction before it has a second thread. */
#include "check.h"

#include <dirent.h>
#include <pthread.h>
#include <semaphore.h>

static char directory[4096];

static const char *path(const char *name)
{
    static __thread char buffers[4][8192];
    static __thread int next;
    char *buffer = buffers[next++ % 4];

    snprintf(buffer, sizeof buffers[0], "%s/%s", directory, name);
    return buffer;
}

/* ---- Ordinary code. ---- */

static void put(const char *file, const char *text)
{
    FILE *stream = fopen(file, "w");

    CHECK(stream != NULL);
    CHECK(fputs(text, stream) >= 0);
    CHECK(fclose(stream) == 0);
}

static const char *get(const char *file)
{
    static __thread char text[64];
    FILE *stream = fopen(file, "r");
    size_t count;

    if (stream == NULL)
        return "";
    count = fread(text, 1, sizeof text - 1, stream);
    text[count] = '\0';
    fclose(stream);
    return text;
}

static int count_entries(void)
{
    DIR *dir = opendir(directory);
    int count = 0;

    CHECK(dir != NULL);
    while (readdir(dir) != NULL)
        count++;
    closedir(dir);
    return count;
}

static void upgrade(const char *version)
{
    put(path("config.tmp"), version);
    CHECK(rename(path("config.tmp"), path("config")) == 0);
    unlink(path("obsolete"));
    CHECK(mkdir(path("plugins"), 0755) == 0 || errno == EEXIST);
    put(path("plugins/list"), version);
}

/* ---- The test. ---- */

static sem_t upgraded, looked;

/* This thread is in no transaction. */
static void *watch(void *unused)
{
    (void)unused;
    sem_wait(&upgraded);
    CHECK(strcmp(get(path("config")), "1") == 0);
    CHECK(access(path("obsolete"), F_OK) == 0);
    CHECK(access(path("plugins"), F_OK) != 0);
    put(path("other"), "outside");
    CHECK(strcmp(get(path("other")), "outside") == 0);
    sem_post(&looked);
    return NULL;
}

static void one_in_one_not(void)
{
    pthread_t watcher;
    struct stat before, inside, after;
    int old;

    sem_init(&upgraded, 0, 0);
    sem_init(&looked, 0, 0);
    CHECK(pthread_create(&watcher, NULL, watch, NULL) == 0);
    CHECK(chdir(directory) == 0);
    CHECK(stat(".", &before) == 0);
    old = open("config", O_RDONLY | O_CLOEXEC);
    CHECK(old >= 0);

    CHECK(atomdir_begin_here(directory, 0) == 0);
    CHECK(atomdir_begin_here(directory, 0) == -EALREADY);
    upgrade("2");
    /* The thread sees its changes by absolute and relative paths, and so does a program that it
     * starts. A file that was open before stays outside the view. */
    CHECK(strcmp(get(path("config")), "2") == 0);
    CHECK(strcmp(get("config"), "2") == 0);
    CHECK(stat(".", &inside) == 0 && inside.st_dev != before.st_dev);
    CHECK(system("test \"$(cat config)\" = 2 && echo 3 > by-program") == 0);
    CHECK(access(".atomdir", F_OK) != 0);
    CHECK(fstat(old, &after) == 0 && after.st_dev == before.st_dev);
    sem_post(&upgraded);
    sem_wait(&looked);
    CHECK(atomdir_commit_here() == 0);

    CHECK(pthread_join(watcher, NULL) == 0);
    CHECK(strcmp(get(path("config")), "2") == 0);
    CHECK(access(path("obsolete"), F_OK) != 0);
    CHECK(strcmp(get("by-program"), "3\n") == 0);
    CHECK(stat(".", &after) == 0 && after.st_ino == before.st_ino);
    CHECK(after.st_dev == before.st_dev);
    close(old);
}

static void abort_and_conflict(void)
{
    int count = count_entries();

    CHECK(atomdir_begin_here(path("plugins"), 0) == 0);
    upgrade("3");
    put(path("new"), "3");
    CHECK(count_entries() > 0 && strcmp(get(path("new")), "3") == 0);
    CHECK(atomdir_abort_here() == 0);
    CHECK(strcmp(get(path("config")), "2") == 0 && count_entries() == count);
    CHECK(atomdir_abort_here() == -EINVAL);
    CHECK(atomdir_commit_here() == -EINVAL);

    /* A change that another program makes meanwhile is not overwritten. */
    CHECK(atomdir_begin_here(directory, 0) == 0);
    upgrade("4");
    put("/proc/self/fd/9/config", "outside");
    CHECK(atomdir_commit_here() == ATOMDIR_ECONFLICT);
    CHECK(atomdir_conflict_count() > 0);
    CHECK(strcmp(get(path("config")), "outside") == 0);
    CHECK(strcmp(get(path("plugins/list")), "2") == 0);

    /* A relative path leads into the view from a working directory outside the store. */
    CHECK(chdir("/") == 0);
    CHECK(atomdir_begin_here(directory, 0) == 0);
    put(path("relative") + 1, "5");
    CHECK(atomdir_abort_here() == 0);
    CHECK(access(path("relative"), F_OK) != 0);
}

/* Whether a file is there outside of all transactions. */
static int is_outside(const char *name)
{
    char buffer[256];

    snprintf(buffer, sizeof buffer, "/proc/self/fd/9/%s", name);
    return access(buffer, F_OK) == 0;
}

static void flattened(void)
{
    CHECK(atomdir_begin_here(directory, 4) == -EINVAL);
    CHECK(atomdir_begin_here(directory, ATOMDIR_FLATTEN) == 0);
    put(path("outer"), "1");
    CHECK(atomdir_begin_here(path("plugins"), ATOMDIR_FLATTEN) == 0);
    CHECK(atomdir_begin_here(path("plugins"), 0) == -EALREADY);
    CHECK(atomdir_begin_here("/", ATOMDIR_FLATTEN) == -EALREADY);
    put(path("inner"), "1");
    CHECK(atomdir_begin_here(directory, ATOMDIR_FLATTEN) == 0);
    CHECK(atomdir_commit_here() == 0 && atomdir_commit_here() == 0);
    CHECK(strcmp(get(path("inner")), "1") == 0);
    CHECK(!is_outside("inner") && !is_outside("outer"));
    CHECK(atomdir_commit_here() == 0);
    CHECK(is_outside("inner") && is_outside("outer"));
    CHECK(atomdir_commit_here() == -EINVAL);

    /* An inner one that is aborted takes all with it. */
    CHECK(atomdir_begin_here(directory, 0) == 0);
    put(path("outer"), "2");
    CHECK(atomdir_begin_here(directory, ATOMDIR_FLATTEN) == 0);
    CHECK(atomdir_begin_here(directory, ATOMDIR_FLATTEN) == 0);
    put(path("dropped"), "2");
    CHECK(atomdir_abort_here() == 0);
    CHECK(atomdir_begin_here(directory, ATOMDIR_FLATTEN) == -ECANCELED);
    CHECK(strcmp(get(path("outer")), "2") == 0);
    CHECK(atomdir_commit_here() == -ECANCELED);
    CHECK(atomdir_commit_here() == -ECANCELED);
    CHECK(atomdir_commit_here() == -EINVAL);
    CHECK(strcmp(get(path("outer")), "1") == 0 && !is_outside("dropped"));
    CHECK(atomdir_begin_here(directory, 0) == 0);
    CHECK(atomdir_begin_here(directory, ATOMDIR_FLATTEN) == 0);
    CHECK(atomdir_abort_here() == 0 && atomdir_abort_here() == 0);
    CHECK(atomdir_abort_here() == -EINVAL);
}

/* What a process may do stays the same. */
static void same_rights(int could_read, uid_t user)
{
    int file = open(path("private"), O_RDONLY | O_CLOEXEC);

    CHECK((file >= 0) == could_read);
    if (file >= 0)
        close(file);
    CHECK(geteuid() == user);
}

int main(int argc, char **argv)
{
    int base, file, could_read;
    uid_t user = geteuid();
    char command[8192];
    FILE *stopper = NULL;

    CHECK(argc == 2);
    snprintf(directory, sizeof directory, "%s", argv[1]);
    /* Keep the directory itself open as descriptor 9, for access beneath the view. */
    base = open(directory, O_RDONLY | O_DIRECTORY);
    CHECK(base >= 0 && dup2(base, 9) == 9);
    put(path("config"), "1");
    put(path("obsolete"), "1");
    put(path("private"), "1");
    CHECK(chmod(path("private"), 0) == 0);
    file = open(path("private"), O_RDONLY | O_CLOEXEC);
    could_read = file >= 0;
    if (file >= 0)
        close(file);
    if (user != 0) {
        /* A process outside. */
        snprintf(command, sizeof command, "read line; atomdir -C '%s' service stop", directory);
        stopper = popen(command, "w");
        CHECK(stopper != NULL);
    }
    CHECK(atomdir_begin_here(directory, 0) == 0);
    same_rights(could_read, user);
    CHECK(atomdir_abort_here() == 0);
    same_rights(could_read, user);
    one_in_one_not();
    abort_and_conflict();
    CHECK(chdir(directory) == 0);
    flattened();
    if (user != 0) {
        /* In its user namespace the process starts no service. */
        CHECK(fputs("now\n", stopper) >= 0 && pclose(stopper) == 0);
        CHECK(atomdir_begin_here(directory, 0) == ATOMDIR_ESERVICE);
        CHECK(strstr(atomdir_message(), "atomdir service start") != NULL);
    }
    return 0;
}
