// Numbers as people read them.
#pragma once

#include <cstdint>
#include <string>

namespace zpp {

/// 124439808 -> "124,439,808".
std::string with_commas(int64_t value);
/// In powers of 1024 with three digits: "1.46 GiB".
std::string human_bytes(int64_t bytes);
/// In powers of 1000 with three digits, "6.71 G" or "12 ": the name of a unit may follow.
std::string human_number(double value);
/// "48 s", "3 m 12 s", "5 h 07 m", "2 d 03 h".
std::string human_seconds(double seconds);

}  // namespace zpp
