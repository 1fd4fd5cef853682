#include "bench/swap/wire.h"

#include <poll.h>
#include <sys/socket.h>

#include <cstring>
#include <vector>

#include "reconfig/base/bytes.h"
#include "reconfig/base/socket.h"

namespace rewire::bench {

namespace {
constexpr size_t kMaxPacket = 64 << 10;
}

bool SendPacket(int fd, const Packet& packet) {
  ByteWriter writer;
  writer.Put(packet.say);
  writer.Put(packet.a);
  writer.Put(packet.b);
  writer.Put(packet.c);
  writer.PutString(packet.bytes);
  const std::string bytes = writer.Take();
  return send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
}

bool ReceivePacket(int fd, Packet* packet, Time deadline) {
  if (!WaitReady(fd, POLLIN, deadline)) return false;
  std::vector<char> raw(kMaxPacket);
  const ssize_t got = recv(fd, raw.data(), raw.size(), 0);
  if (got <= 0) return false;
  ByteReader reader({raw.data(), static_cast<size_t>(got)});
  packet->say = reader.Get<Say>();
  packet->a = reader.Get<uint64_t>();
  packet->b = reader.Get<uint64_t>();
  packet->c = reader.Get<uint64_t>();
  packet->bytes = std::string(reader.GetString());
  return reader.Finished();
}

}  // namespace rewire::bench
