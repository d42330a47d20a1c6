/* Three calls around ordinary code: here STORE
 *
 * One thread is in a transaction, and another is not. */
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

    CHECK(atomdir_begin_here(directory) == 0);
    CHECK(atomdir_begin_here(directory) == -EALREADY);
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

    CHECK(atomdir_begin_here(path("plugins")) == 0);
    upgrade("3");
    put(path("new"), "3");
    CHECK(count_entries() > 0 && strcmp(get(path("new")), "3") == 0);
    CHECK(atomdir_abort_here() == 0);
    CHECK(strcmp(get(path("config")), "2") == 0 && count_entries() == count);
    CHECK(atomdir_abort_here() == -EINVAL);
    CHECK(atomdir_commit_here() == -EINVAL);

    /* A change that another program makes meanwhile is not overwritten. */
    CHECK(atomdir_begin_here(directory) == 0);
    upgrade("4");
    put("/proc/self/fd/9/config", "outside");
    CHECK(atomdir_commit_here() == ATOMDIR_ECONFLICT);
    CHECK(atomdir_conflict_count() > 0);
    CHECK(strcmp(get(path("config")), "outside") == 0);
    CHECK(strcmp(get(path("plugins/list")), "2") == 0);

    /* A relative path leads into the view from a working directory outside the store. */
    CHECK(chdir("/") == 0);
    CHECK(atomdir_begin_here(directory) == 0);
    put(path("relative") + 1, "5");
    CHECK(atomdir_abort_here() == 0);
    CHECK(access(path("relative"), F_OK) != 0);
}

int main(int argc, char **argv)
{
    int base;

    CHECK(argc == 2);
    snprintf(directory, sizeof directory, "%s", argv[1]);
    /* Keep the directory itself open as descriptor 9, for access beneath the view. */
    base = open(directory, O_RDONLY | O_DIRECTORY);
    CHECK(base >= 0 && dup2(base, 9) == 9);
    put(path("config"), "1");
    put(path("obsolete"), "1");
    one_in_one_not();
    abort_and_conflict();
    return 0;
}
