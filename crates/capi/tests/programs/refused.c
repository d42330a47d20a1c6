/* Without privileges and with a second thread, atomdir_begin_here fails and changes nothing:
 * refused STORE */
#include "check.h"

#include <pthread.h>
#include <semaphore.h>

static sem_t over;

static void *wait_for_the_end(void *unused)
{
    (void)unused;
    sem_wait(&over);
    return NULL;
}

int main(int argc, char **argv)
{
    char before[4096], after[4096];
    pthread_t thread;

    CHECK(argc == 2);
    sem_init(&over, 0, 0);
    CHECK(pthread_create(&thread, NULL, wait_for_the_end, NULL) == 0);
    CHECK(chdir(argv[1]) == 0 && getcwd(before, sizeof before) != NULL);
    CHECK(atomdir_begin_here(argv[1], 0) == -EPERM);
    CHECK(strstr(atomdir_message(), "must have one thread") != NULL);
    CHECK(getcwd(after, sizeof after) != NULL && strcmp(before, after) == 0);
    CHECK(atomdir_commit_here() == -EINVAL);
    sem_post(&over);
    CHECK(pthread_join(thread, NULL) == 0);
    return 0;
}
