#include "core/human.h"

#include <fmt/format.h>

#include <cmath>
#include <span>

namespace zpp {
namespace {

/// Three digits and the largest of `units` that leaves something before the point.
std::string scaled(double value, double base, std::span<const char* const> units) {
  size_t unit = 0;
  while (std::abs(value) >= 0.9995 * base && unit + 1 < units.size()) {
    value /= base;
    ++unit;
  }
  const double size = std::abs(value);
  const int decimals = unit == 0 || size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2;
  return fmt::format("{:.{}f} {}", value, decimals, units[unit]);
}

}  // namespace

std::string with_commas(int64_t value) {
  std::string text = std::to_string(value);
  const size_t sign = value < 0 ? 1 : 0;
  for (size_t at = text.size(); at > sign + 3;) text.insert(at -= 3, 1, ',');
  return text;
}

std::string human_bytes(int64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  return scaled(static_cast<double>(bytes), 1024.0, kUnits);
}

std::string human_number(double value) {
  static constexpr const char* kUnits[] = {"", "k", "M", "G", "T", "P", "E", "Z", "Y"};
  return scaled(value, 1000.0, kUnits);
}

std::string human_seconds(double seconds) {
  const auto s = static_cast<int64_t>(std::llround(seconds));
  if (s < 60) return fmt::format("{} s", s);
  if (s < 3600) return fmt::format("{} m {:02} s", s / 60, s % 60);
  if (s < 86400) return fmt::format("{} h {:02} m", s / 3600, s / 60 % 60);
  return fmt::format("{} d {:02} h", s / 86400, s / 3600 % 24);
}

}  // namespace zpp
