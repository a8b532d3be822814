/*
 * limit-user UID COUNT: sets RLIMIT_NPROC of every process of the user to COUNT, or, for "none", to
 * its hard limit. Repeats until all have it: a child that is forked meanwhile inherits the limit
 * that its parent had at the fork.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

static int limit_one(pid_t pid, const char *count) {
  struct rlimit limit;
  if (prlimit(pid, RLIMIT_NPROC, NULL, &limit) != 0) return 0;
  rlim_t soft = strcmp(count, "none") == 0 ? limit.rlim_max : (rlim_t)atol(count);
  if (limit.rlim_cur == soft) return 0;
  limit.rlim_cur = soft;
  return prlimit(pid, RLIMIT_NPROC, &limit, NULL) == 0;
}

static int limit_all(uid_t user, const char *count) {
  int changed = 0;
  DIR *processes = opendir("/proc");
  if (!processes) return 0;
  for (struct dirent *entry; (entry = readdir(processes));) {
    char path[64];
    struct stat about;
    pid_t pid = atoi(entry->d_name);
    snprintf(path, sizeof path, "/proc/%d", pid);
    if (pid > 0 && stat(path, &about) == 0 && about.st_uid == user) changed += limit_one(pid, count);
  }
  closedir(processes);
  return changed;
}

int main(int argc, char **argv) {
  if (argc != 3) return 2;
  while (limit_all((uid_t)atol(argv[1]), argv[2]) > 0) {
  }
  return 0;
}
