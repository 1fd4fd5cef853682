#include "net_plugin/verbs/offer.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "net_plugin/socket/wire_format.h"
#include "reconfig/base/bytes.h"

namespace rewire::net {
namespace {

constexpr uint32_t kPsnMask = 0xffffff;
constexpr size_t kOfferBytes = 44;  // without its queues
constexpr size_t kQueueBytes = 16;

absl::Status WrongLength(const char* message, size_t bytes) {
  return Malformed(message, absl::StrCat("bytes=", bytes, ": must be what its counts say"));
}

}  // namespace

std::string Encode(const Offer& o) {
  ByteWriter out;
  out.Put(o.link_layer);
  out.Put(o.gid_type);
  out.Put(o.lid);
  out.Put(o.mtu);
  out.Put(o.speed_mbps);
  out.Put(o.ring_rkey);
  out.Put(o.ring);
  out.PutRaw({reinterpret_cast<const char*>(o.gid.bytes.data()), o.gid.bytes.size()});
  out.Put(static_cast<uint32_t>(o.queues.size()));
  for (const Offer::Queue& q : o.queues) {
    out.Put(q.number);
    out.Put(q.first_psn);
    out.Put(q.ece.vendor);
    out.Put(q.ece.options);
  }
  return out.Take();
}

absl::StatusOr<Offer> DecodeOffer(std::string_view bytes) {
  ByteReader in(bytes);
  Offer o;
  const auto layer = in.Get<uint8_t>();
  const auto type = in.Get<uint8_t>();
  o.lid = in.Get<uint16_t>();
  o.mtu = in.Get<uint32_t>();
  o.speed_mbps = in.Get<uint32_t>();
  o.ring_rkey = in.Get<uint32_t>();
  o.ring = in.Get<uint64_t>();
  const std::string_view gid = in.Raw(o.gid.bytes.size());
  const uint32_t queues = in.GetCount(kQueueBytes);
  if (!in.ok() || bytes.size() != kOfferBytes + queues * kQueueBytes) {
    return WrongLength("offer", bytes.size());
  }
  if (layer > 2) return Malformed("offer", absl::StrCat("link layer=", layer, ": must be 0 to 2"));
  if (type > 2) return Malformed("offer", absl::StrCat("GID type=", type, ": must be 0 to 2"));
  if (o.mtu < 256 || o.mtu > 4096 || (o.mtu & (o.mtu - 1)) != 0) {
    return Malformed("offer",
                     absl::StrCat("MTU=", o.mtu, ": must be a power of two from 256 to 4096"));
  }
  if (queues == 0 || queues > kMostQueuePairs) {
    return Malformed("offer",
                     absl::StrCat("queue pairs=", queues, ": must be 1 to ", kMostQueuePairs));
  }
  o.link_layer = static_cast<rdma::LinkLayer>(layer);
  o.gid_type = static_cast<rdma::GidType>(type);
  std::copy(gid.begin(), gid.end(), o.gid.bytes.begin());
  for (uint32_t i = 0; i < queues; ++i) {
    const auto number = in.Get<uint32_t>();
    const auto psn = in.Get<uint32_t>();
    const auto vendor = in.Get<uint32_t>();
    const auto options = in.Get<uint32_t>();
    if (number > kPsnMask || psn > kPsnMask) {
      return Malformed("offer", absl::StrCat("queue pair=", number, " first packet=", psn,
                                             ": must be less than 16777216"));
    }
    o.queues.push_back({number, psn, {vendor, options}});
  }
  return o;
}

std::string Encode(const Received& r) {
  ByteWriter out;
  out.Put(r.next);
  out.Put(static_cast<uint32_t>(r.receives.size()));
  for (const Received::Receive& receive : r.receives) {
    out.Put(receive.sequence);
    out.Put(static_cast<uint32_t>(receive.pieces.size()));
    for (const uint64_t mask : receive.pieces) out.Put(mask);
  }
  return out.Take();
}

absl::StatusOr<Received> DecodeReceived(std::string_view bytes) {
  ByteReader in(bytes);
  Received r;
  r.next = in.Get<uint64_t>();
  const uint32_t receives = in.GetCount(sizeof(uint64_t) + sizeof(uint32_t));
  if (receives > kMaxRequests) {
    return Malformed("report of the receiver",
                     absl::StrCat("receives=", receives, ": must be at most ", kMaxRequests));
  }
  for (uint32_t i = 0; i < receives && in.ok(); ++i) {
    Received::Receive& receive = r.receives.emplace_back();
    receive.sequence = in.Get<uint64_t>();
    const uint32_t parts = in.GetCount(sizeof(uint64_t));
    if (in.ok() && (parts == 0 || parts > kMaxRecvs)) {
      return Malformed("report of the receiver",
                       absl::StrCat("buffers=", parts, ": must be 1 to ", kMaxRecvs));
    }
    for (uint32_t p = 0; p < parts; ++p) receive.pieces.push_back(in.Get<uint64_t>());
  }
  if (!in.Finished()) return WrongLength("report of the receiver", bytes.size());
  return r;
}

std::string Encode(const Cleared& c) {
  ByteWriter out;
  out.Put(c.head);
  out.Put(c.seen);
  return out.Take();
}

absl::StatusOr<Cleared> DecodeCleared(std::string_view bytes) {
  ByteReader in(bytes);
  Cleared c;
  c.head = in.Get<uint64_t>();
  c.seen = in.Get<uint32_t>();
  if (!in.Finished()) {
    return Malformed("report of the sender", absl::StrCat("bytes=", bytes.size(), ": must be 12"));
  }
  return c;
}

}  // namespace rewire::net
