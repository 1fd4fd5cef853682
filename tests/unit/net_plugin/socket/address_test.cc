// Links over IPv6: the loopback address, and a link-local address.
#include "net_plugin/socket/address.h"

#include <gtest/gtest.h>
#include <netinet/in.h>

#include <algorithm>

#include "net_plugin/plugin/interfaces.h"
#include "tests/unit/net_plugin/proxy.h"
#include "tests/unit/net_plugin/socket_ends.h"

namespace rewire::net {
namespace {

using net_test::Pattern;
using net_test::SocketEnds;

sockaddr_in6& V6(sockaddr_storage* a) { return reinterpret_cast<sockaddr_in6&>(*a); }

// Returns the first of this machine's addresses that fits.
template <typename Fits>
std::optional<sockaddr_storage> Find(Fits fits) {
  const absl::StatusOr<std::vector<Interface>> all = ListInterfaces();
  if (!all.ok()) return std::nullopt;
  for (Interface i : *all) {
    if (i.address.ss_family == AF_INET6 && fits(V6(&i.address))) return i.address;
  }
  return std::nullopt;
}

void Carry(SocketEnds* ends, size_t bytes) {
  const std::vector<char> sent = Pattern(bytes, bytes);
  std::vector<char> got(bytes);
  Request* const receive = ends->Receive(&got);
  Request* const send = ends->Send(sent);
  // Polls in turn: either end only progresses while it is polled.
  bool come = false;
  bool gone = false;
  const Time deadline = net_test::Soon();
  while (!(come && gone)) {
    ASSERT_LT(Now(), deadline);
    come = come || SocketEnds::Done(ends->receiver.get(), receive);
    gone = gone || SocketEnds::Done(ends->sender.get(), send);
  }
  EXPECT_TRUE(got == sent);
}

TEST(Ipv6Test, ReusesLinkOverLoopback) {
  const auto loopback = Find([](auto& a) { return IN6_IS_ADDR_LOOPBACK(&a.sin6_addr); });
  if (!loopback) GTEST_SKIP() << "this machine has no ::1";
  SocketEnds ends;
  for (int use = 0; use < 3; ++use) {
    ASSERT_NO_FATAL_FAILURE(ends.Join(3, *loopback));
    for (const size_t bytes : {8, 1000, 3 << 20}) Carry(&ends, bytes);
    ends.sender.reset();
    ends.receiver.reset();
  }
  EXPECT_EQ(ends.here.counters().links_made.load(), 1u);
  EXPECT_EQ(ends.here.counters().links_reused.load(), 2u);
}

TEST(Ipv6Test, ReachesLinkLocalAddressThroughLocalInterface) {
  const auto local = Find([](auto& a) { return IN6_IS_ADDR_LINKLOCAL(&a.sin6_addr); });
  if (!local) GTEST_SKIP() << "this machine has no link-local address";
  sockaddr_storage own = *local;
  ASSERT_NE(V6(&own).sin6_scope_id, 0u);
  SocketEnds ends;
  absl::StatusOr<ListenAddress> address = ends.there.Listen(own);
  ASSERT_TRUE(address.ok()) << address.status();
  // The address comes from a machine where this interface has another number.
  V6(&address->address).sin6_scope_id += 1000;
  char handle[kHandleBytes];
  EncodeAddress(*address, handle);
  *address = *DecodeAddress(handle);
  EXPECT_EQ(V6(&address->address).sin6_scope_id, V6(&own).sin6_scope_id + 1000);
  std::unique_ptr<Link> link;
  const Time deadline = net_test::Soon();
  while (link == nullptr && Now() < deadline) {
    absl::StatusOr<std::unique_ptr<Link>> made = ends.here.Connect(own, 1, &*address);
    ASSERT_TRUE(made.ok()) << made.status();
    link = *std::move(made);
    ASSERT_TRUE(ends.there.Accept(address->listener).ok());
  }
  EXPECT_NE(link, nullptr);
}

TEST(Ipv6Test, ScopesOnlyLinkLocalAddresses) {
  sockaddr_storage from{};
  V6(&from).sin6_family = AF_INET6;
  V6(&from).sin6_scope_id = 7;
  sockaddr_storage to = from;
  V6(&to).sin6_scope_id = 3;
  V6(&to).sin6_addr.s6_addr[0] = 0xfe;
  V6(&to).sin6_addr.s6_addr[1] = 0x80;
  sockaddr_storage reached = Scoped(to, from);
  EXPECT_EQ(V6(&reached).sin6_scope_id, 7u);
  V6(&to).sin6_addr = in6addr_loopback;
  reached = Scoped(to, from);
  EXPECT_EQ(V6(&reached).sin6_scope_id, 3u);
}

}  // namespace
}  // namespace rewire::net
