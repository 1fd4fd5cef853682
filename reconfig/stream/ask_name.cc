// One question; see ask_name.h.
#include "reconfig/stream/ask_name.h"

#include "reconfig/base/bytes.h"
#include "reconfig/base/socket.h"

namespace rewire {
namespace {

absl::Status ToStatus(const SocketStatus& s) {
  if (s.ok()) return absl::OkStatus();
  return s.code == SocketCode::kTimeout ? absl::DeadlineExceededError(s.text)
                                        : absl::UnavailableError(s.text);
}

}  // namespace

absl::StatusOr<std::optional<std::string>> AskName(const std::string& address, uint64_t secret,
                                                   MemberId asker, std::string_view name,
                                                   Time deadline) {
  if (name.empty() || name.size() > kMaxNameBytes) {
    return absl::InvalidArgumentError("a name has 1 to " + std::to_string(kMaxNameBytes) +
                                      " bytes");
  }
  UniqueFd fd;
  if (auto s = ToStatus(ConnectTcp(address, deadline, &fd)); !s.ok()) return s;
  ByteWriter out;
  out.PutRaw(EncodeGreeting({{Purpose::kNames, 0, secret}, asker, 0}));
  out.PutString(name);
  if (auto s = ToStatus(SendAll(fd.get(), out.bytes(), deadline)); !s.ok()) return s;
  char head[kReplySize];
  if (auto s = ToStatus(ReceiveAll(fd.get(), head, sizeof head, deadline)); !s.ok()) return s;
  if (DecodeReply({head, sizeof head}) != Reply::kAccepted) {
    return absl::UnavailableError("the member at " + address + " takes no questions yet");
  }
  char length[4];
  if (auto s = ToStatus(ReceiveAll(fd.get(), length, sizeof length, deadline)); !s.ok()) return s;
  const auto bytes = ByteReader({length, sizeof length}).Get<uint32_t>();
  if (bytes > kMaxValueBytes)
    return absl::DataLossError("the answer of " + address + " is no value");
  if (bytes == 0) return std::optional<std::string>();
  std::string value(bytes, '\0');
  if (auto s = ToStatus(ReceiveAll(fd.get(), value.data(), bytes, deadline)); !s.ok()) return s;
  return std::optional<std::string>(std::move(value));
}

}  // namespace rewire
