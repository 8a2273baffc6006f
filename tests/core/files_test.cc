#include "core/files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <string>

#include "core/error.h"

namespace zpp {
namespace {

namespace fs = std::filesystem;

class Files : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    dir_ = fs::path(testing::TempDir()) / (std::string("files_") + info->name());
    fs::remove_all(dir_);
    fs::create_directories(dir_);
  }
  void TearDown() override { fs::remove_all(dir_); }
  int64_t entries() const {
    return std::distance(fs::directory_iterator(dir_), fs::directory_iterator());
  }

  fs::path dir_;
};

template <class Fn>
Code code_of(Fn fn, std::string* text = nullptr) {
  try {
    fn();
  } catch (const Error& e) {
    if (text != nullptr) *text = e.what();
    return e.code();
  }
  ADD_FAILURE() << "no Error was thrown";
  return Code::kInternal;
}

TEST_F(Files, AtomicWriteReplacesTheContentAndLeavesNothingElse) {
  write_file_atomic(dir_ / "a", "one");
  write_file_atomic(dir_ / "a", "two, longer");
  EXPECT_EQ(read_file(dir_ / "a"), "two, longer");
  EXPECT_EQ(entries(), 1);
}

TEST_F(Files, AtomicFileWithoutCommitLeavesTheOldContent) {
  write_file_atomic(dir_ / "a", "old");
  {
    AtomicFile file(dir_ / "a");
    file.write("new");
    EXPECT_EQ(entries(), 2);
  }
  EXPECT_EQ(read_file(dir_ / "a"), "old");
  EXPECT_EQ(entries(), 1);
}

TEST_F(Files, WriteAtPatchesAHeader) {
  AtomicFile file(dir_ / "a");
  file.write("....body");
  file.write_at(0, std::as_bytes(std::span(std::string_view("head"))));
  file.write("!");
  EXPECT_EQ(file.size(), 9);
  file.commit();
  EXPECT_EQ(read_file(dir_ / "a"), "headbody!");
  EXPECT_EQ(code_of([&] { file.commit(); }), Code::kFailedPrecondition);
}

TEST_F(Files, AtomicWriteMakesDirectoriesAndReadableFiles) {
  write_file_atomic(dir_ / "x" / "y" / "a", "1");
  struct stat status {};
  ASSERT_EQ(::stat((dir_ / "x/y/a").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0644u);
}

TEST_F(Files, MapsContentAndMovesOwnership) {
  write_file_atomic(dir_ / "a", "abc");
  MappedFile a(dir_ / "a");
  a.advise(MappedFile::Access::kRandom);
  MappedFile b = std::move(a);
  EXPECT_EQ(a.size(), 0);  // NOLINT(bugprone-use-after-move)
  ASSERT_EQ(b.size(), 3);
  EXPECT_EQ(static_cast<char>(b.bytes()[2]), 'c');
  b = MappedFile(dir_ / "a");
  EXPECT_EQ(b.bytes().size(), 3u);
}

TEST_F(Files, AnEmptyFileMapsToAnEmptySpan) {
  write_file_atomic(dir_ / "a", "");
  MappedFile a(dir_ / "a");
  EXPECT_EQ(a.size(), 0);
  EXPECT_TRUE(a.bytes().empty());
  a.advise(MappedFile::Access::kSequential);
  EXPECT_EQ(read_file(dir_ / "a"), "");
}

TEST_F(Files, ErrorsNameTheFileAndTheReason) {
  std::string text;
  EXPECT_EQ(code_of([&] { MappedFile(dir_ / "none"); }, &text), Code::kNotFound);
  EXPECT_EQ(text, (dir_ / "none").string() + ": cannot open: No such file or directory");
  EXPECT_EQ(code_of([&] { read_file(dir_ / "none"); }), Code::kNotFound);
  EXPECT_EQ(code_of([&] { MappedFile{dir_}; }, &text), Code::kInvalidArgument);
  EXPECT_NE(text.find("a directory"), std::string::npos) << text;
  EXPECT_EQ(code_of([&] { read_file(dir_); }), Code::kInvalidArgument);
  EXPECT_EQ(code_of([&] { read_file("/dev/zero"); }), Code::kInvalidArgument);
  write_file_atomic(dir_ / "plain", "");
  EXPECT_EQ(code_of([&] { AtomicFile(dir_ / "plain" / "a"); }), Code::kInvalidArgument);
}

TEST_F(Files, OnlyRegularFilesAreReplacedAndLinksStayLinks) {
  EXPECT_EQ(code_of([&] { AtomicFile("/dev/null"); }), Code::kInvalidArgument);
  write_file_atomic(dir_ / "real", "old");
  std::filesystem::create_symlink(dir_ / "real", dir_ / "link");
  write_file_atomic(dir_ / "link", "new");
  EXPECT_TRUE(std::filesystem::is_symlink(dir_ / "link"));
  EXPECT_EQ(read_file(dir_ / "real"), "new");
}

TEST_F(Files, ALockIsHeldByOneAtATime) {
  {
    const FileLock first(dir_ / "lock");
    EXPECT_EQ(code_of([&] { FileLock(dir_ / "lock"); }), Code::kInvalidArgument);
  }
  EXPECT_NO_THROW(FileLock(dir_ / "lock"));
}

TEST_F(Files, APipeIsRefusedWithoutWaitingForAWriter) {
  ASSERT_EQ(::mkfifo((dir_ / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(code_of([&] { MappedFile(dir_ / "pipe"); }), Code::kInvalidArgument);
}

TEST_F(Files, ReadsFilesWhoseSizeIsNotKnownBeforehand) {
  EXPECT_NE(read_file("/proc/self/status").find("Pid:"), std::string::npos);
}

}  // namespace
}  // namespace zpp
