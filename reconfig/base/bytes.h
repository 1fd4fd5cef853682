// Bounds-checked little-endian reading and writing of wire and file bytes.
//
// A reader never reads past its span and never trusts a length. After the first bad read, the
// reader has failed: later reads return zero, and ok() returns false. Thread-compatible.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace rewire {

class ByteWriter {
 public:
  template <typename T>
  void Put(T value) {
    static_assert(std::is_integral_v<T> || std::is_enum_v<T>);
    unsigned char raw[sizeof(T)];
    auto bits = static_cast<uint64_t>(value);
    for (unsigned char& b : raw) {
      b = static_cast<unsigned char>(bits);
      bits >>= 8;
    }
    bytes_.append(reinterpret_cast<const char*>(raw), sizeof raw);
  }
  void PutString(std::string_view s) {
    Put(static_cast<uint32_t>(s.size()));
    bytes_.append(s);
  }
  void PutRaw(std::string_view s) { bytes_.append(s); }

  [[nodiscard]] const std::string& bytes() const { return bytes_; }
  [[nodiscard]] std::string Take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : rest_(bytes) {}

  template <typename T>
  T Get() {
    static_assert(std::is_integral_v<T> || std::is_enum_v<T>);
    const std::string_view raw = Raw(sizeof(T));
    uint64_t bits = 0;
    for (size_t i = 0; i < raw.size(); ++i) {
      bits |= static_cast<uint64_t>(static_cast<unsigned char>(raw[i])) << (8 * i);
    }
    return static_cast<T>(bits);
  }
  std::string_view GetString() { return Raw(Get<uint32_t>()); }
  // Returns the next n bytes; with fewer bytes left, returns none and the reader fails.
  std::string_view Raw(size_t n) {
    if (!ok_ || n > rest_.size()) {
      ok_ = false;
      return {};
    }
    const std::string_view out = rest_.substr(0, n);
    rest_.remove_prefix(n);
    return out;
  }
  // Reads a count of elements of at least min_bytes each. Fails if the remaining bytes cannot hold
  // the elements, so that a peer's length never causes a large allocation.
  uint32_t GetCount(size_t min_bytes) {
    const auto n = Get<uint32_t>();
    if (!ok_ || n > rest_.size() / (min_bytes == 0 ? 1 : min_bytes)) {
      ok_ = false;
      return 0;
    }
    return n;
  }
  void Fail() { ok_ = false; }

  [[nodiscard]] bool ok() const { return ok_; }
  // True if all bytes have been read without an error.
  [[nodiscard]] bool Finished() const { return ok_ && rest_.empty(); }

 private:
  std::string_view rest_;
  bool ok_ = true;
};

}  // namespace rewire
