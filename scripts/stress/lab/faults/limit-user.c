/*
 * limit-user UID COUNT: every process of the user may have so many processes beside it, "none": as many as its hard limit says. Looks until
 * nobody is found who was not told: a child that was forked meanwhile has the limit of its parent at that moment.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

static int tell(pid_t pid, const char *count) {
  struct rlimit limit;
  if (prlimit(pid, RLIMIT_NPROC, NULL, &limit) != 0) return 0;
  rlim_t soft = strcmp(count, "none") == 0 ? limit.rlim_max : (rlim_t)atol(count);
  if (limit.rlim_cur == soft) return 0;
  limit.rlim_cur = soft;
  return prlimit(pid, RLIMIT_NPROC, &limit, NULL) == 0;
}

static int tell_all(uid_t user, const char *count) {
  int told = 0;
  DIR *processes = opendir("/proc");
  if (!processes) return 0;
  for (struct dirent *entry; (entry = readdir(processes));) {
    char path[64];
    struct stat about;
    pid_t pid = atoi(entry->d_name);
    snprintf(path, sizeof path, "/proc/%d", pid);
    if (pid > 0 && stat(path, &about) == 0 && about.st_uid == user) told += tell(pid, count);
  }
  closedir(processes);
  return told;
}

int main(int argc, char **argv) {
  if (argc != 3) return 2;
  while (tell_all((uid_t)atol(argv[1]), argv[2]) > 0) {
  }
  return 0;
}
