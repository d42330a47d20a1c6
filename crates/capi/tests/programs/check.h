/* Headers, and the macro CHECK, of the test programs. */
#include <atomdir.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition)                                                                     \
    do {                                                                                     \
        if (!(condition)) {                                                                  \
            fprintf(stderr, "%s:%d: failed: %s (last message: %s)\n", __FILE__, __LINE__,    \
                    #condition, atomdir_message());                                          \
            exit(1);                                                                         \
        }                                                                                    \
    } while (0)
