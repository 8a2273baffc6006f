#include "core/log.h"

#include <fmt/format.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <vector>

#include "core/error.h"

namespace zpp {

namespace {

spdlog::level::level_enum spdlog_level(LogLevel level) {
  switch (level) {
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::err;
}

class SpdLog final : public Log {
 public:
  explicit SpdLog(std::vector<spdlog::sink_ptr> sinks)
      : logger_("zpp", sinks.begin(), sinks.end()) {
    logger_.set_pattern("%H:%M:%S %l %v");
    logger_.flush_on(spdlog::level::info);
  }

  void write(LogLevel level, std::string_view text) override {
    logger_.log(spdlog_level(level), spdlog::string_view_t(text.data(), text.size()));
  }

 private:
  spdlog::logger logger_;
};

class NullLog final : public Log {
 public:
  void write(LogLevel, std::string_view) override {}
};

}  // namespace

std::unique_ptr<Log> make_log(const std::filesystem::path& file, LogLevel console) {
  std::vector<spdlog::sink_ptr> sinks{std::make_shared<spdlog::sinks::stderr_sink_mt>()};
  sinks.front()->set_level(spdlog_level(console));
  if (!file.empty()) {
    try {
      sinks.push_back(std::make_shared<spdlog::sinks::basic_file_sink_mt>(file.string()));
    } catch (const spdlog::spdlog_ex& error) {
      throw Error(Code::kIo, fmt::format("log file {}: {}", file.string(), error.what()));
    }
  }
  return std::make_unique<SpdLog>(std::move(sinks));
}

std::unique_ptr<Log> null_log() { return std::make_unique<NullLog>(); }

}  // namespace zpp
