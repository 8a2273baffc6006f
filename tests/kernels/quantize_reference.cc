#include "tests/kernels/quantize_reference.h"

namespace zpp::kernels {

std::vector<Isa> isas() {
  std::vector<Isa> isas = {Isa::kAvx2};
  if (best_isa() == Isa::kAvx512) isas.push_back(Isa::kAvx512);
  return isas;
}

bool Packed::operator==(const Packed& other) const {
  return codes == other.codes && scales.size() == other.scales.size() &&
         std::equal(scales.begin(), scales.end(), other.scales.begin(), [](float a, float b) {
           return __builtin_bit_cast(uint32_t, a) == __builtin_bit_cast(uint32_t, b);
         });
}

namespace {

void put_code(Bytes& codes, const QuantFormat& format, int64_t i, int code) {
  const auto at = static_cast<size_t>(i);
  if (format.bits == 8) {
    codes[at] = static_cast<std::byte>(code);
  } else {
    codes[at / 2] |= static_cast<std::byte>((code & 15) << (at % 2 * 4));
  }
}
int get_code(const Bytes& codes, const QuantFormat& format, int64_t i) {
  const auto at = static_cast<size_t>(i);
  if (format.bits == 8) return static_cast<int8_t>(codes[at]);
  const int code = static_cast<int>(codes[at / 2] >> (at % 2 * 4)) & 15;
  return code < 8 ? code : code - 16;
}

float scale_of(const float* x, int64_t n, float q) {
  float largest = 0;
  for (int64_t i = 0; i < n; ++i) {
    if (!std::isfinite(x[i])) return kNaN;
    largest = std::max(largest, std::abs(x[i]));
  }
  if (largest < 0x1p-119f) return 0;
  const float scale = largest / q;
  return std::isinf(q * scale) ? std::nextafter(scale, 0.0f) : scale;
}

Floats decoded(const Packed& from, int64_t n, const QuantFormat& format) {
  Floats x(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    x[static_cast<size_t>(i)] = static_cast<float>(get_code(from.codes, format, i)) *
                                from.scales[static_cast<size_t>(i / format.block)];
  }
  return x;
}

}  // namespace

int largest_code(const QuantFormat& format) { return format.bits == 8 ? 127 : 7; }

Floats transformed(Floats x, float factor, float few) {
  const size_t whole = x.size() / 32 * 32;
  for (size_t i = 0; i < x.size(); ++i) x[i] *= i < whole ? factor : few;
  for (size_t group = 0; group < whole; group += 32) {
    for (size_t distance = 1; distance < 32; distance *= 2) {
      for (size_t i = 0; i < 32; ++i) {
        if ((i & distance) != 0) continue;
        float& a = x[group + i];
        float& b = x[group + i + distance];
        const float sum = a + b, difference = a - b;
        a = sum;
        b = difference;
      }
    }
  }
  return x;
}

Packed encoded(const Floats& values, const QuantFormat& format, bool hadamard,
               const uint16_t* numbers) {
  const auto n = static_cast<int64_t>(values.size());
  const Floats x = hadamard ? transformed(values, 1.0f / 32, 0.25f) : values;
  Packed out{Bytes(static_cast<size_t>(format.code_bytes(n))), {}};
  for (int64_t begin = 0; begin < n; begin += format.block) {
    const int64_t end = std::min(n, begin + format.block);
    const auto q = static_cast<float>(largest_code(format));
    const float scale = scale_of(&x[static_cast<size_t>(begin)], end - begin, q);
    out.scales.push_back(scale);
    if (!(scale > 0)) continue;
    const float inverse = 1.0f / scale;
    for (int64_t i = begin; i < end; ++i) {
      float code = x[static_cast<size_t>(i)] * inverse;
      if (numbers != nullptr) {
        // Evenly from (-1/2, 1/2), less 2^-14 of it.
        constexpr float kStep = 16383.0f / 16384 / 65536;
        const float number = static_cast<int16_t>(numbers[i]);
        code = std::fma(x[static_cast<size_t>(i)], inverse, std::fma(number, kStep, kStep / 2));
      }
      put_code(out.codes, format, i, static_cast<int>(std::nearbyint(code)));
    }
  }
  return out;
}

Floats decoded_sum(const std::vector<Packed>& sources, int64_t n, const QuantFormat& format) {
  Floats sum = decoded(sources[0], n, format);
  for (size_t k = 1; k < sources.size(); ++k) {
    const Floats x = decoded(sources[k], n, format);
    for (size_t i = 0; i < x.size(); ++i) sum[i] += x[i];
  }
  return sum;
}

std::vector<uint16_t> numbers_of(const RngKey& key, int64_t first, int64_t n) {
  std::vector<uint16_t> numbers;
  for (int64_t i = first; i < first + n; ++i) {
    const auto number = static_cast<uint64_t>(i);
    numbers.push_back(static_cast<uint16_t>(key.bits(number / 2) >> (number % 2 * 16)));
  }
  return numbers;
}

}  // namespace zpp::kernels
