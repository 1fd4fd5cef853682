#include "net_plugin/socket/send_queue.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstddef>

namespace rewire::net {
namespace {

constexpr uint32_t kNearUs = 10;
constexpr int kShort = 256 << 10;

}  // namespace

std::optional<int> SendBufferOf(uint32_t round_trip_us) {
  if (round_trip_us > kNearUs) return std::nullopt;
  return kShort;
}

bool SendQueueIsLong(int fd) {
  int size = 0;
  socklen_t bytes = sizeof size;
  // Linux returns twice the value that was set.
  return getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, &bytes) == 0 && size > 2 * kShort;
}

bool BoundSendQueue(int fd) {
  tcp_info info{};
  socklen_t bytes = sizeof info;
  // Available since Linux 4.6. The minimum is used, because handshakes also wait for processors.
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0 ||
      bytes < offsetof(tcp_info, tcpi_min_rtt) + sizeof info.tcpi_min_rtt) {
    return false;
  }
  const std::optional<int> size = SendBufferOf(info.tcpi_min_rtt);
  return size.has_value() && setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &*size, sizeof *size) == 0;
}

}  // namespace rewire::net
