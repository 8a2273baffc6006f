// What client and server of the TCP store say to each other.
//
// A client begins with a hello: magic, length of the token, token. The server answers with the magic
// and kYes or kNo, and in the second case closes. Then the client asks, one question at a time: a
// header, a key and, for kSet, a value; the answer is a header and, for a kGet that found it, a
// value. Numbers are little-endian as on all machines that this runs on.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace zpp::tcp_wire {

constexpr std::string_view kMagic = "zppstore";
constexpr uint32_t kMaxToken = 1024, kMaxKey = 4096, kMaxValue = 16 << 20;

enum class Ask : uint32_t { kSet = 1, kGet = 2 };
enum class Answer : uint32_t { kYes = 1, kNo = 2, kTimeout = 3 };

struct Question {
  Ask ask;
  uint32_t key_bytes, value_bytes;
  uint32_t timeout_ms;  // of a kGet
};

struct Reply {
  Answer answer;
  uint32_t value_bytes;
};

template <class T>
std::string bytes_of(const T& value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof value);
}

/// Needs sizeof(T) bytes.
template <class T>
T read_as(std::string_view bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

}  // namespace zpp::tcp_wire
