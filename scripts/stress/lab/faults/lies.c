/*
 * Preloaded into the bots of the stress lab: shifts the clock and delays writes to files.
 * SPAWN_OWNED_LAB_LIES names a file with two 64-bit integers: the offset of the clock and the delay
 * of a write, both in ms. The lab changes them while the bots run.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

struct lies {
  volatile int64_t offset_ms, delay_ms;
};

static struct lies truth;
static struct lies *lies = &truth;
static int (*real_clock_gettime)(clockid_t, struct timespec *);
static ssize_t (*real_write)(int, const void *, size_t);

__attribute__((constructor)) static void begin(void) {
  real_clock_gettime = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
  real_write = (ssize_t(*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
  const char *path = getenv("SPAWN_OWNED_LAB_LIES");
  int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (file < 0) return;
  void *page = mmap(NULL, sizeof truth, PROT_READ, MAP_SHARED, file, 0);
  if (page != MAP_FAILED) lies = page;
  close(file);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  if (!real_clock_gettime) begin();
  int result = real_clock_gettime(clock, now);
  if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
    int64_t ms = lies->offset_ms;
    now->tv_sec += ms / 1000;
    now->tv_nsec += ms % 1000 * 1000000;
    if (now->tv_nsec < 0) now->tv_sec--, now->tv_nsec += 1000000000;
    if (now->tv_nsec >= 1000000000) now->tv_sec++, now->tv_nsec -= 1000000000;
  }
  return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  (void)zone;
  struct timespec precise;
  int result = clock_gettime(CLOCK_REALTIME, &precise);
  now->tv_sec = precise.tv_sec;
  now->tv_usec = precise.tv_nsec / 1000;
  return result;
}

time_t time(time_t *out) {
  struct timespec precise;
  clock_gettime(CLOCK_REALTIME, &precise);
  if (out) *out = precise.tv_sec;
  return precise.tv_sec;
}

ssize_t write(int file, const void *bytes, size_t count) {
  if (!real_write) begin();
  int64_t ms = lies->delay_ms;
  struct stat about;
  if (ms > 0 && fstat(file, &about) == 0 && S_ISREG(about.st_mode)) {
    struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&pause, NULL);
  }
  return real_write(file, bytes, count);
}
