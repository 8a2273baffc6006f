// Log lines of a process: one format, to stderr and, when asked, to a file.
#pragma once

#include <filesystem>
#include <memory>
#include <string_view>

namespace zpp {

enum class LogLevel { kInfo, kWarning, kError };

/// Where log lines go. One per process, owned by main() and handed down: there is no global logger.
class Log {
 public:
  virtual ~Log() = default;
  virtual void write(LogLevel level, std::string_view text) = 0;
  void info(std::string_view text) { write(LogLevel::kInfo, text); }
  void warn(std::string_view text) { write(LogLevel::kWarning, text); }
  void error(std::string_view text) { write(LogLevel::kError, text); }
};

/// Writes "HH:MM:SS level text" to stderr, and to `file` too unless it is empty (made with its
/// directory, appended). Lines below the level `console` go to the file only.
/// Errors:  kIo if the file cannot be opened.
std::unique_ptr<Log> make_log(const std::filesystem::path& file = {},
                              LogLevel console = LogLevel::kInfo);
/// Keeps nothing.
std::unique_ptr<Log> null_log();

}  // namespace zpp
