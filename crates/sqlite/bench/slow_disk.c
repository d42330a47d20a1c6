/* A FUSE file system with one file, "disk", which is LENGTH_IN_MIB long and kept in memory. Each flush
   takes MICROSECONDS longer. A loop device over the file is a disk with slow flushes.

       cc -O2 -o slow_disk slow_disk.c $(pkg-config --cflags --libs fuse3)
       slow_disk MICROSECONDS LENGTH_IN_MIB MOUNT_POINT                                          */
#define FUSE_USE_VERSION 31
#define _GNU_SOURCE
#include <errno.h>
#include <fuse.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static long flush_us;
static off_t length;
static int memory;

static int attributes(const char *path, struct stat *stat, struct fuse_file_info *file) {
    (void)file;
    memset(stat, 0, sizeof *stat);
    stat->st_nlink = 1;
    stat->st_mode = S_IFDIR | 0755;
    if (strcmp(path, "/disk") == 0) {
        stat->st_mode = S_IFREG | 0600;
        stat->st_size = length;
    } else if (strcmp(path, "/") != 0) {
        return -ENOENT;
    }
    return 0;
}

static int open_disk(const char *path, struct fuse_file_info *file) {
    (void)path;
    file->keep_cache = 1;
    return 0;
}

static int read_disk(const char *path, char *to, size_t count, off_t at, struct fuse_file_info *file) {
    (void)path, (void)file;
    ssize_t read = pread(memory, to, count, at);
    return read < 0 ? -errno : (int)read;
}

static int write_disk(const char *path, const char *from, size_t count, off_t at,
                      struct fuse_file_info *file) {
    (void)path, (void)file;
    ssize_t written = pwrite(memory, from, count, at);
    return written < 0 ? -errno : (int)written;
}

static int flush_disk(const char *path, int data_only, struct fuse_file_info *file) {
    (void)path, (void)data_only, (void)file;
    struct timespec pause = {0, flush_us * 1000};
    if (flush_us > 0) nanosleep(&pause, 0);
    return 0;
}

static const struct fuse_operations operations = {
    .getattr = attributes, .open = open_disk, .read = read_disk, .write = write_disk, .fsync = flush_disk,
};

int main(int count, char **arguments) {
    if (count != 4) return 64;
    flush_us = atol(arguments[1]);
    length = (off_t)atol(arguments[2]) << 20;
    memory = memfd_create("disk", 0);
    if (memory < 0 || ftruncate(memory, length)) return 74;
    char *mount[] = {arguments[0], "-f", arguments[3]};
    return fuse_main(3, mount, &operations, 0);
}
