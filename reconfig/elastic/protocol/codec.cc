// Encodes and decodes frames; see codec.h. Pure functions; thread-safe.
#include "reconfig/elastic/protocol/codec.h"

#include <algorithm>
#include <array>
#include <functional>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "reconfig/base/bytes.h"
#include "reconfig/elastic/protocol/fields.h"

namespace rewire::elastic {
namespace {

constexpr size_t kLengthBytes = 4;
constexpr size_t kHeaderBytes = kLengthBytes + 4;
constexpr size_t kTypes = std::variant_size_v<Message>;

// Indexed by position in Message. Numbers on the wire never change: new messages are appended.
constexpr std::array<std::string_view, kTypes> kNames = {"Hello",
                                                         "CommunicatorCreated",
                                                         "CommunicatorDestroyed",
                                                         "Minted",
                                                         "Prepared",
                                                         "Pledge",
                                                         "AtBoundary",
                                                         "Verified",
                                                         "Entered",
                                                         "Position",
                                                         "Heartbeat",
                                                         "ReclaimNotice",
                                                         "Finished",
                                                         "Welcome",
                                                         "Refused",
                                                         "Prepare",
                                                         "Build",
                                                         "Propose",
                                                         "Decide",
                                                         "Restore",
                                                         "Commit",
                                                         "Abort",
                                                         "Lost",
                                                         "Stop",
                                                         "Retire",
                                                         "CommunicatorPinned",
                                                         "Witness",
                                                         "Forming"};

class Writer {
 public:
  template <typename T>
  void Number(T value) {
    if constexpr (std::is_same_v<T, bool>) {
      bytes_.Put(static_cast<uint8_t>(value ? 1 : 0));
    } else {
      bytes_.Put(value);
    }
  }
  void Secret(const Key& key) { bytes_.PutRaw(key.view()); }
  // Text for people is truncated at its limit; addresses and ids never reach their limits.
  void Text(const std::string& text, size_t limit) {
    bytes_.PutString(std::string_view(text).substr(0, limit));
  }
  template <typename T>
  void List(std::vector<T>& list) {
    bytes_.Put(static_cast<uint32_t>(list.size()));
    for (T& each : list) wire::Fields(*this, each);
  }
  void Ranks(std::vector<uint32_t>& list, uint32_t) { List(list); }
  [[nodiscard]] std::string Take() { return bytes_.Take(); }

 private:
  ByteWriter bytes_;
};

// Computes the fewest bytes that one value of T takes, which a count is checked against.
class Sizer {
 public:
  template <typename T>
  void Number(T) {
    size_ += std::is_same_v<T, bool> ? 1 : sizeof(T);
  }
  void Secret(const Key&) { size_ += kKeyBytes; }
  void Text(const std::string&, size_t) { size_ += 4; }
  template <typename T>
  void List(std::vector<T>&) {
    size_ += 4;
  }
  void Ranks(std::vector<uint32_t>& list, uint32_t) { List(list); }
  [[nodiscard]] size_t size() const { return size_; }

 private:
  size_t size_ = 0;
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  template <typename T>
  void Number(T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      const auto raw = bytes_.Get<uint8_t>();
      if (raw > 1) Fail("a flag must be 0 or 1");
      value = raw == 1;
    } else if constexpr (std::is_same_v<T, TransitionKind>) {
      const auto raw = bytes_.Get<uint8_t>();
      if (bytes_.ok() && (raw < 1 || raw > 3)) Fail("unknown kind of transition");
      value = static_cast<TransitionKind>(raw);
    } else {
      value = bytes_.Get<T>();
    }
  }
  void Secret(Key& key) {
    const std::string_view raw = bytes_.Raw(kKeyBytes);
    if (bytes_.ok()) key = KeyOfBytes(raw);
  }
  void Text(std::string& text, size_t limit) {
    const std::string_view raw = bytes_.GetString();
    if (raw.size() > limit) {
      Fail("a text is too long");
      return;
    }
    text.assign(raw);
  }
  template <typename T>
  void List(std::vector<T>& list) {
    Sizer sizer;
    T smallest{};
    wire::Fields(sizer, smallest);
    const uint32_t n = bytes_.GetCount(sizer.size());
    list.reserve(n);
    for (uint32_t i = 0; i < n && bytes_.ok(); ++i) wire::Fields(*this, list.emplace_back());
  }
  void Ranks(std::vector<uint32_t>& list, uint32_t size) {
    List(list);
    if (!bytes_.ok()) return;
    const auto disorder = std::adjacent_find(list.begin(), list.end(), std::greater_equal<>());
    if (list.empty() || disorder != list.end() || list.back() >= size) {
      Fail("ranks must be ascending and below the communicator's size");
    }
  }
  // Returns the fault, or an empty text when everything was read and no bytes are left over.
  [[nodiscard]] std::string Error() const {
    if (!error_.empty()) return error_;
    if (!bytes_.ok()) return "the message ends too early, or a count is too large";
    if (!bytes_.Finished()) return "bytes follow after the message";
    return "";
  }

 private:
  void Fail(const char* what) {
    if (error_.empty()) error_ = what;
    bytes_.Fail();
  }

  ByteReader bytes_;
  std::string error_;
};

template <size_t I>
absl::StatusOr<Message> DecodeAs(std::string_view payload) {
  Reader reader(payload);
  std::variant_alternative_t<I, Message> m;
  wire::Fields(reader, m);
  const std::string error = reader.Error();
  if (!error.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("malformed ", std::string(kNames[I]), " message: ", error));
  }
  return Message(std::in_place_index<I>, std::move(m));
}

template <size_t... I>
absl::StatusOr<Message> DecodeType(size_t index, std::string_view payload,
                                   std::index_sequence<I...>) {
  absl::StatusOr<Message> out = absl::InvalidArgumentError("unknown message type");
  ((index == I ? (out = DecodeAs<I>(payload), 0) : 0), ...);
  return out;
}

// Checks the length field of a frame.
absl::Status CheckLength(uint32_t length) {
  if (length + kLengthBytes > kMaxFrameBytes || length < kHeaderBytes - kLengthBytes) {
    return absl::InvalidArgumentError(absl::StrCat("malformed frame: length=", length, ": must be ",
                                                   kHeaderBytes - kLengthBytes, " to ",
                                                   kMaxFrameBytes - kLengthBytes));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> Encode(const Message& message) {
  Writer writer;
  // The field lists are shared with the reader and therefore take non-const references.
  Message copy = message;
  std::visit([&](auto& m) { wire::Fields(writer, m); }, copy);
  const std::string payload = writer.Take();
  if (payload.size() + kHeaderBytes > kMaxFrameBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "encode ", std::string(MessageName(message)), " message: bytes=", payload.size(),
        ": must be at most ", kMaxFrameBytes - kHeaderBytes));
  }
  ByteWriter frame;
  frame.Put(static_cast<uint32_t>(payload.size() + kHeaderBytes - kLengthBytes));
  frame.Put(kProtocolVersion);
  frame.Put(static_cast<uint16_t>(message.index() + 1));
  frame.PutRaw(payload);
  return frame.Take();
}

absl::StatusOr<Message> Decode(std::string_view frame) {
  ByteReader reader(frame);
  const auto length = reader.Get<uint32_t>();
  const auto version = reader.Get<uint16_t>();
  const auto type = reader.Get<uint16_t>();
  if (!reader.ok())
    return absl::InvalidArgumentError(
        absl::StrCat("malformed frame: bytes=", frame.size(), ": shorter than a header"));
  if (absl::Status status = CheckLength(length); !status.ok()) return status;
  if (length != frame.size() - kLengthBytes) {
    return absl::InvalidArgumentError(absl::StrCat("malformed frame: length=", length, ": must be ",
                                                   frame.size() - kLengthBytes));
  }
  if (version != kProtocolVersion) {
    return absl::InvalidArgumentError(
        absl::StrCat("protocol version ", version, ": must be ", kProtocolVersion));
  }
  if (type < 1 || type > kTypes) {
    return absl::InvalidArgumentError(absl::StrCat("unknown message type ", type));
  }
  return DecodeType(type - 1u, frame.substr(kHeaderBytes), std::make_index_sequence<kTypes>());
}

std::string_view MessageName(const Message& message) { return kNames[message.index()]; }

}  // namespace rewire::elastic
