#include "core/log.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "core/error.h"

namespace zpp {
namespace {

namespace fs = std::filesystem;

class LogTest : public testing::Test {
 protected:
  LogTest() : dir_(fs::path(testing::TempDir()) / ("zpp_log_" + std::to_string(getpid()))) {}
  ~LogTest() override { fs::remove_all(dir_); }

  static std::string read(const fs::path& file) {
    std::stringstream text;
    text << std::ifstream(file).rdbuf();
    return text.str();
  }

  fs::path dir_;
};

TEST_F(LogTest, WritesOneFormatToStderrAndFile) {
  const fs::path file = dir_ / "log" / "rank-0.log";
  testing::internal::CaptureStderr();
  {
    const std::unique_ptr<Log> log = make_log(file);
    log->info("step {} of 3");
    log->warn("slow");
    log->error("lost");
  }
  const std::string stderr_text = testing::internal::GetCapturedStderr();
  EXPECT_EQ(read(file), stderr_text);
  std::istringstream lines(stderr_text);
  for (const char* wanted : {"info step {} of 3", "warning slow", "error lost"}) {
    std::string line;
    std::getline(lines, line);
    ASSERT_GT(line.size(), 9u);
    EXPECT_EQ(line[2], ':');
    EXPECT_EQ(line[5], ':');
    EXPECT_EQ(line.substr(8), std::string(" ") + wanted);
  }
}

TEST_F(LogTest, AppendsToAFileThatIsThereAndShowsEachLineAtOnce) {
  const fs::path file = dir_ / "a.log";
  testing::internal::CaptureStderr();
  make_log(file)->info("one");
  const std::unique_ptr<Log> log = make_log(file);
  log->info("two");
  testing::internal::GetCapturedStderr();
  const std::string text = read(file);
  EXPECT_NE(text.find("info one\n"), std::string::npos);
  EXPECT_NE(text.find("info two\n"), std::string::npos);
}

TEST_F(LogTest, NamesAFileItCannotOpen) {
  fs::create_directories(dir_ / "taken");
  try {
    make_log(dir_ / "taken");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kIo);
    EXPECT_NE(std::string(error.what()).find((dir_ / "taken").string()), std::string::npos);
  }
}

TEST_F(LogTest, NullLogIsSilent) {
  testing::internal::CaptureStderr();
  null_log()->error("nobody hears this");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace zpp
