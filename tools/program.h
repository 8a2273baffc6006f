// What every main() does around its own work: the command line, and errors as exit codes.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <iostream>

#include "tools/exit_code.h"

namespace zpp {

/// A reader that goes away or a full file system is an error of the write, not the end of the
/// process; and a file that the program opens must not take the place of a closed stdin, stdout or
/// stderr.
inline void settle_process() {
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  while (true) {
    const int fd = ::open("/dev/null", O_RDWR);
    if (fd > 2) ::close(fd);
    if (fd < 0 || fd > 2) return;
  }
}

/// Parses the command line into `app` (subcommand callbacks run here), then calls `body`, which
/// returns the exit code. Errors go to stderr after the program's name and become the exit code;
/// output that could not be written is one of them.
template <class Body>
int run_program(CLI::App& app, int argc, char** argv, const Body& body) {
  const auto fail = [&app](const char* text, ExitCode code) {
    std::cerr << app.get_name() << ": " << text << "\n";
    return code;
  };
  settle_process();
  try {
    app.parse(argc, argv);
    const int code = body();
    if (!std::cout.flush()) return fail("the output could not be written", kExitFailed);
    return code;
  } catch (const CLI::Success& done) {  // --help, --version
    return app.exit(done);
  } catch (const CLI::ParseError& error) {
    return fail(error.what(), kExitBadInput);
  } catch (const Error& error) {
    return fail(error.what(), exit_code(error));
  } catch (const std::exception& error) {
    return fail(error.what(), kExitFailed);
  }
}

}  // namespace zpp
