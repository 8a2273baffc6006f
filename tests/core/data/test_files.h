// Small token files for the tests of this directory.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "core/data/token_format.h"
#include "core/error.h"

namespace zpp::testing_data {

/// A directory of its own for each test, removed afterwards.
class DataTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    dir_ = std::filesystem::path(testing::TempDir()) /
           (std::string(info->test_suite_name()) + "_" + info->name());
    std::filesystem::remove_all(dir_);
    std::filesystem::create_directories(dir_);
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  std::string put(const std::string& name, const std::string& content) const {
    std::filesystem::remove(dir_ / name);  // replacing in place makes some file systems flush
    std::ofstream(dir_ / name, std::ios::binary) << content;
    return (dir_ / name).string();
  }
  std::string path(const std::string& name) const { return (dir_ / name).string(); }

  std::filesystem::path dir_;
};

template <class T>
std::string raw(const std::vector<T>& values) {
  std::string out(values.size() * sizeof(T), '\0');
  if (!values.empty()) std::memcpy(out.data(), values.data(), out.size());
  return out;
}

inline std::string from_hex(const std::string& hex) {
  std::string out;
  for (size_t i = 0; i + 1 < hex.size(); i += 2)
    out += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return out;
}

inline std::string zpp_file(const std::vector<uint16_t>& tokens, int64_t vocab = 257,
                            std::optional<int64_t> eot = 256,
                            const std::string& tokenizer = "byte") {
  TokenFileInfo info{.format = "zpp", .type = TokenType::kU16};
  info.tokens = static_cast<int64_t>(tokens.size());
  info.vocab = vocab;
  info.eot = eot;
  info.documents = 0;
  info.tokenizer = tokenizer;
  const auto header = make_zpp_header(info);
  return std::string(reinterpret_cast<const char*>(header.data()), header.size()) + raw(tokens);
}

template <class T>
std::string llmc_file(const std::vector<T>& tokens) {
  std::vector<int32_t> header(256, 0);
  header[0] = sizeof(T) == 2 ? 20240520 : 20240801;
  header[1] = sizeof(T) == 2 ? 1 : 7;
  header[2] = static_cast<int32_t>(tokens.size());
  return raw(header) + raw(tokens);
}

/// Documents [1,2,3] and [4,5] as u16.
inline std::string megatron_bin() { return from_hex("01000200030004000500"); }
inline std::string megatron_idx() {
  return from_hex(
      "4d4d4944494458000001000000000000000802000000000000000300000000000000030000000200000000000000"
      "00000000"
      "0600000000000000000000000000000001000000000000000200000000000000");
}

/// Text of the Error that fn must throw with kInvalidArgument.
template <class Fn>
std::string invalid_argument(Fn fn) {
  try {
    fn();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::kInvalidArgument) << e.what();
    return e.what();
  }
  return "no error";
}

}  // namespace zpp::testing_data
