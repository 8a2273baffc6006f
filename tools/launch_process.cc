#include "tools/launch_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "core/error.h"

namespace zpp {
namespace {

constexpr int kMostCpus = 8192;

/// Closes what a failed start leaves open.
struct Pipe {
  int read = -1, write = -1;
  explicit Pipe(bool wanted = true) {
    int fds[2];
    if (!wanted) return;
    if (::pipe2(fds, O_CLOEXEC) != 0) {
      throw Error(Code::kIo, fmt::format("no pipe: {}", std::strerror(errno)));
    }
    read = fds[0];
    write = fds[1];
  }
  ~Pipe() {
    if (read >= 0) ::close(read);
    if (write >= 0) ::close(write);
  }
  int take(int& end) {
    const int fd = end;
    end = -1;
    return fd;
  }
};

bool sets(const std::string& entry, const std::string& variable) {
  const std::string name = entry.substr(0, entry.find('='));
  return variable.starts_with(name) && variable[name.size()] == '=';
}

std::vector<std::string> changed_environment(const std::vector<std::string>& changes) {
  std::vector<std::string> all;
  for (char** variable = ::environ; *variable != nullptr; ++variable) {
    bool kept = true;
    for (const std::string& change : changes) kept = kept && !sets(change, *variable);
    if (kept) all.emplace_back(*variable);
  }
  for (const std::string& change : changes) {
    if (change.find('=') != std::string::npos) all.push_back(change);
  }
  return all;
}

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> all;
  for (const std::string& text : texts) all.push_back(const_cast<char*>(text.c_str()));
  all.push_back(nullptr);
  return all;
}

/// A mask of CPUs of any number.
struct CpuMask {
  cpu_set_t* set = CPU_ALLOC(kMostCpus);
  size_t bytes = CPU_ALLOC_SIZE(kMostCpus);
  CpuMask() { CPU_ZERO_S(bytes, set); }
  ~CpuMask() { CPU_FREE(set); }
  CpuMask(const CpuMask&) = delete;
  CpuMask& operator=(const CpuMask&) = delete;
};

/// Everything that the new process needs between fork() and exec(), where it may call only what is
/// safe in a signal handler.
struct Start {
  const char* program;
  char* const* arguments;
  char* const* environment;
  int input, output, errors, report;
  const CpuMask* cores;  // null: inherited
  pid_t parent;
};

[[noreturn]] void become(const Start& start) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != start.parent) ::_exit(127);  // it ended before we could ask
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  if (start.cores != nullptr) ::sched_setaffinity(0, start.cores->bytes, start.cores->set);
  if (::dup2(start.input, 0) >= 0 && ::dup2(start.output, 1) >= 0 && ::dup2(start.errors, 2) >= 0) {
    ::execvpe(start.program, start.arguments, start.environment);
  }
  const int error = errno;
  [[maybe_unused]] const ssize_t n = ::write(start.report, &error, sizeof(error));
  ::_exit(127);
}

}  // namespace

Process::Process(const ProcessSpec& spec) {
  const std::vector<std::string> environment = changed_environment(spec.environment);
  const std::vector<char*> argv = pointers(spec.arguments), envp = pointers(environment);
  CpuMask mask;
  for (const int core : spec.cores) CPU_SET_S(static_cast<size_t>(core), mask.bytes, mask.set);
  Pipe in(spec.has_input), out, err, report;
  const int null = spec.has_input ? -1 : ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  const Start start{.program = spec.program.c_str(),
                    .arguments = argv.data(),
                    .environment = envp.data(),
                    .input = spec.has_input ? in.read : null,
                    .output = out.write,
                    .errors = err.write,
                    .report = report.write,
                    .cores = spec.cores.empty() ? nullptr : &mask,
                    .parent = ::getpid()};
  pid_ = ::fork();
  if (pid_ == 0) become(start);
  const int fork_error = errno;
  if (null >= 0) ::close(null);
  if (pid_ < 0) {
    throw Error(Code::kIo,
                fmt::format("{} cannot be started: {}", spec.name, std::strerror(fork_error)));
  }
  ::setpgid(pid_, pid_);  // whoever comes first
  ::close(report.take(report.write));
  int error = 0;
  if (::read(report.read, &error, sizeof(error)) == sizeof(error)) {
    ::waitpid(pid_, nullptr, 0);
    throw Error(Code::kIo, fmt::format("{} cannot be started: {}: {}", spec.name, spec.program,
                                       std::strerror(error)));
  }
  input_ = in.take(in.write);
  output_ = out.take(out.read);
  errors_ = err.take(err.read);
  for (const int fd : {input_, output_, errors_}) {
    if (fd >= 0) ::fcntl(fd, F_SETFL, O_NONBLOCK);
  }
  write(spec.first_input);
}

Process::~Process() {
  if (!poll()) {
    signal(SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  close_input();
  ::close(output_);
  ::close(errors_);
}

void Process::write(std::string_view text) {
  if (input_ < 0) return;
  [[maybe_unused]] const ssize_t n = ::write(input_, text.data(), text.size());
}

void Process::close_input() {
  if (input_ >= 0) ::close(input_);
  input_ = -1;
}

void Process::signal(int number) const {
  if (!status_) ::kill(-pid_, number);
}

std::optional<int> Process::poll() {
  siginfo_t info = {};
  if (!status_ &&
      ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
      info.si_pid == pid_) {
    // Takes along what it started, as long as nobody else can have the group's number.
    signal(SIGKILL);
    int status = 0;
    ::waitpid(pid_, &status, 0);
    status_ = status;
  }
  return status_;
}

std::string describe_status(int wait_status) {
  if (!WIFSIGNALED(wait_status)) {
    return fmt::format("ended with exit status {}", WEXITSTATUS(wait_status));
  }
  return fmt::format("was killed by signal {} ({})", WTERMSIG(wait_status),
                     signal_name(WTERMSIG(wait_status)));
}

std::string signal_name(int number) {
  const char* name = ::sigabbrev_np(number);
  return name == nullptr ? fmt::format("signal {}", number) : fmt::format("SIG{}", name);
}

std::vector<int> affinity_cores() {
  const CpuMask mask;
  std::vector<int> cores;
  if (::sched_getaffinity(0, mask.bytes, mask.set) != 0) return cores;
  for (int core = 0; core < kMostCpus; ++core) {
    if (CPU_ISSET_S(static_cast<size_t>(core), mask.bytes, mask.set)) cores.push_back(core);
  }
  return cores;
}

}  // namespace zpp
