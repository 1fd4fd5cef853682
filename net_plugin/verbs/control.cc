#include "net_plugin/verbs/control.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace rewire::net {
namespace {

// The maximum payload of a frame other than a piece.
constexpr size_t kMostPayload = 64 << 10;

}  // namespace

void Control::SendFrame(FrameHeader header, std::string payload) {
  header.bytes = static_cast<uint32_t>(payload.size());
  frames_.push_back({header, std::move(payload)});
}

void Control::SendPiece(FrameHeader header, const char* data) {
  frames_.push_back({header, {}, data});
}

absl::Status Control::Move() {
  absl::Status written = Write();
  // Frames that the peer sent before it disconnected still count.
  absl::Status read = Read();
  if (!written.ok()) return written;
  if (!read.ok()) return read;
  // A received frame may need an answer.
  return Write();
}

absl::Status Control::Write() {
  while (!frames_.empty()) {
    Frame& f = frames_.front();
    constexpr size_t kHeader = sizeof f.header;
    const size_t of_header = std::min(f.sent, kHeader);
    const size_t of_payload = f.sent - of_header;
    const char* payload = f.piece != nullptr ? f.piece : f.payload.data();
    const absl::StatusOr<size_t> sent =
        stream_->Write(reinterpret_cast<const char*>(&f.header) + of_header, kHeader - of_header,
                       payload + of_payload, f.header.bytes - of_payload);
    if (!sent.ok()) return sent.status();
    f.sent += *sent;
    if (f.sent < kHeader + f.header.bytes) return absl::OkStatus();
    const FrameHeader header = f.header;
    frames_.pop_front();
    if (header.kind == FrameKind::kPiece) listener_->FrameSent(header);
  }
  return absl::OkStatus();
}

absl::Status Control::Read() {
  for (;;) {
    if (!headed_) {
      const absl::StatusOr<bool> headed = stream_->ReadHeader(&header_);
      if (!headed.ok()) return absl::UnavailableError(headed.status().message());
      if (!*headed) return absl::OkStatus();
      headed_ = true;
      have_ = 0;
      place_ = nullptr;
    }
    if (place_ == nullptr) {
      if (header_.kind == FrameKind::kPiece) {
        absl::StatusOr<char*> place = listener_->PlaceOf(header_);
        if (!place.ok()) return place.status();
        if (*place == nullptr && header_.bytes > 0) return absl::OkStatus();
        place_ = *place;
      } else {
        if (header_.bytes > kMostPayload) {
          return absl::DataLossError(absl::StrCat("control connection to ", stream_->peer(),
                                                  ": malformed frame: ", FrameText(header_),
                                                  ": bytes must be at most ", kMostPayload));
        }
        payload_.resize(header_.bytes);
        place_ = payload_.data();
      }
    }
    while (have_ < header_.bytes) {
      const absl::StatusOr<size_t> got =
          stream_->ReadPayload(place_ + have_, header_.bytes - have_);
      if (!got.ok()) return absl::UnavailableError(got.status().message());
      if (*got == 0) return absl::OkStatus();
      have_ += *got;
    }
    headed_ = false;
    const bool piece = header_.kind == FrameKind::kPiece;
    const absl::StatusOr<bool> more =
        listener_->TakeFrame(header_, piece ? std::string_view() : std::string_view(payload_));
    if (!more.ok()) return more.status();
    if (!*more) return absl::OkStatus();
  }
}

}  // namespace rewire::net
