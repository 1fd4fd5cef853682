// The end of a bootstrap root that nobody needs any more.
#include "shim/core/bootstrap_root.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "reconfig/base/unique_fd.h"

namespace rewire::shim {
namespace {

constexpr uint64_t kMagic = 0x1122334455667788;

// Listens on a port of the loopback interface, as the root of `id`.
UniqueFd Listen(int family, ncclUniqueId* id) {
  UniqueFd fd(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_in6 address{};  // also long enough for a sockaddr_in
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  auto* const v4 = reinterpret_cast<sockaddr_in*>(&address);
  any->sa_family = static_cast<sa_family_t>(family);
  if (family == AF_INET) v4->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (family == AF_INET6) address.sin6_addr = in6addr_loopback;
  socklen_t length = family == AF_INET ? sizeof *v4 : sizeof address;
  if (bind(fd.get(), any, length) != 0 || listen(fd.get(), 8) != 0 ||
      getsockname(fd.get(), any, &length) != 0) {
    return UniqueFd();
  }
  std::memset(id, 0, sizeof *id);
  std::memcpy(id->internal, &kMagic, sizeof kMagic);
  std::memcpy(id->internal + sizeof kMagic, any, length);
  return fd;
}

class BootstrapRootTest : public ::testing::TestWithParam<int> {};

TEST_P(BootstrapRootTest, StopsToAccept) {
  ncclUniqueId id;
  const UniqueFd root = Listen(GetParam(), &id);
  if (root.get() < 0) GTEST_SKIP() << "no such address family";
  const uint64_t number = BootstrapRootOf(id);
  ASSERT_NE(number, 0u);
  EXPECT_LT(accept4(root.get(), nullptr, nullptr, SOCK_CLOEXEC), 0);
  EXPECT_EQ(errno, EAGAIN);
  EndBootstrapRoot(number);
  EXPECT_LT(accept4(root.get(), nullptr, nullptr, SOCK_CLOEXEC), 0);
  EXPECT_EQ(errno, EINVAL);
}

INSTANTIATE_TEST_SUITE_P(Families, BootstrapRootTest, ::testing::Values(AF_INET, AF_INET6));

TEST(EndedBootstrapRootTest, NoOtherSocketIsTouched) {
  ncclUniqueId id;
  ncclUniqueId other;
  uint64_t number = 0;
  {
    const UniqueFd root = Listen(AF_INET, &id);
    number = BootstrapRootOf(id);
    EXPECT_NE(number, 0u);
  }
  const UniqueFd stranger = Listen(AF_INET, &other);
  EXPECT_EQ(BootstrapRootOf(id), 0u);
  EndBootstrapRoot(number);
  EXPECT_LT(accept4(stranger.get(), nullptr, nullptr, SOCK_CLOEXEC), 0);
  EXPECT_EQ(errno, EAGAIN);
}

TEST(EndedBootstrapRootTest, AnIdWithoutAnAddressHasNone) {
  ncclUniqueId id;
  std::memset(&id, 0x5a, sizeof id);
  EXPECT_EQ(BootstrapRootOf(id), 0u);
}

}  // namespace
}  // namespace rewire::shim
