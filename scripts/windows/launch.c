// launch COMMAND ARGUMENTS...: runs a command in a job that ends with this program, and exits with
// its code.
//
// The job ends everything that a test leaves behind, also if this program is killed, because then
// the kernel closes the job. The command never runs outside the job. Processes that are left after
// the end of the command are named on stderr.
//
// The command gets a console without a window, as every Windows user has one. In a headless Wine it
// would get none.
//
// It also finds a desktop. Wine creates a desktop for the first process that needs one: it starts
// its explorer, which inherits the stderr of that process and stays. Without the call below, that
// process would be the server of a pseudo-console, at the first key. Its stderr is the output of
// the terminal, which would then never end.
#include <windows.h>

#include <psapi.h>
#include <stdio.h>
#include <wchar.h>

static int failed(const char *what) {
  fprintf(stderr, "launch: %s: error %lu\n", what, GetLastError());
  return 125;
}

/** The command line after our own name, unchanged, so that no argument must be quoted again. */
static wchar_t *rest(void) {
  wchar_t *line = GetCommandLineW();
  wchar_t end = L' ';
  if (*line == L'"') {
    end = L'"';
    line++;
  }
  while (*line && *line != end) line++;
  if (*line) line++;
  while (*line == L' ') line++;
  return line;
}

/** The server of the console is in the job as well. */
static int is_console(HANDLE process) {
  wchar_t path[MAX_PATH];
  DWORD size = MAX_PATH;
  if (!QueryFullProcessImageNameW(process, 0, path, &size)) return 0;
  wchar_t *name = wcsrchr(path, L'\\');
  return name && (!_wcsicmp(name, L"\\conhost.exe") || !_wcsicmp(name, L"\\explorer.exe"));
}

/** The number of running processes of the job. Names them if `is_named`. */
static int running(HANDLE job, int is_named) {
  struct {
    DWORD assigned, listed;
    ULONG_PTR pids[256];
  } list = {0};
  QueryInformationJobObject(job, JobObjectBasicProcessIdList, &list, sizeof list, NULL);
  int count = 0;
  for (DWORD i = 0; i < list.listed; i++) {
    DWORD pid = (DWORD)list.pids[i];
    HANDLE process = OpenProcess(PROCESS_QUERY_LIMITED_INFORMATION | SYNCHRONIZE, FALSE, pid);
    if (!process) continue;
    if (WaitForSingleObject(process, 0) == WAIT_TIMEOUT && !is_console(process)) {
      wchar_t path[MAX_PATH] = L"?";
      DWORD size = MAX_PATH;
      QueryFullProcessImageNameW(process, 0, path, &size);
      if (is_named) fprintf(stderr, "left running: %lu %ls\n", pid, path);
      count++;
    }
    CloseHandle(process);
  }
  return count;
}

int wmain(void) {
  HANDLE job = CreateJobObjectW(NULL, NULL);
  JOBOBJECT_EXTENDED_LIMIT_INFORMATION limits = {0};
  limits.BasicLimitInformation.LimitFlags = JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE;
  if (!job || !SetInformationJobObject(job, JobObjectExtendedLimitInformation, &limits, sizeof limits))
    return failed("no job");

  char space[256];
  SIZE_T size = sizeof space;
  STARTUPINFOEXW start = {0};
  start.StartupInfo.cb = sizeof start;
  start.lpAttributeList = (void *)space;
  if (!InitializeProcThreadAttributeList(start.lpAttributeList, 1, 0, &size) ||
      !UpdateProcThreadAttribute(start.lpAttributeList, 0, PROC_THREAD_ATTRIBUTE_JOB_LIST, &job, sizeof job, NULL, NULL))
    return failed("no attributes");

  DWORD standard[] = {STD_INPUT_HANDLE, STD_OUTPUT_HANDLE, STD_ERROR_HANDLE};
  HANDLE *handles[] = {&start.StartupInfo.hStdInput, &start.StartupInfo.hStdOutput, &start.StartupInfo.hStdError};
  for (int i = 0; i < 3; i++) {
    *handles[i] = GetStdHandle(standard[i]);
    SetHandleInformation(*handles[i], HANDLE_FLAG_INHERIT, HANDLE_FLAG_INHERIT);
  }
  start.StartupInfo.dwFlags = STARTF_USESTDHANDLES;

  // The desktop exists as long as a process uses it: this program does until it exits.
  if (!GetDesktopWindow()) return failed("cannot create a desktop");

  PROCESS_INFORMATION command;
  if (!CreateProcessW(NULL, rest(), NULL, NULL, TRUE, CREATE_NO_WINDOW | EXTENDED_STARTUPINFO_PRESENT, NULL, NULL,
                      &start.StartupInfo, &command))
    return failed("cannot start the command");
  WaitForSingleObject(command.hProcess, INFINITE);
  DWORD code = 125;
  GetExitCodeProcess(command.hProcess, &code);
  // Processes of the command may be about to end.
  for (int i = 0; i < 40 && running(job, 0) > 0; i++) Sleep(50);
  running(job, 1);
  return (int)code;
}
