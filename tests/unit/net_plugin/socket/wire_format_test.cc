// The bytes of handles and of the handshake: round trips, and a reason for each refusal.
#include "net_plugin/socket/wire_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "net_plugin/socket/address.h"

namespace rewire::net {
namespace {

using ::testing::HasSubstr;

template <typename T>
std::string Why(const absl::StatusOr<T>& decoded) {
  return std::string(decoded.status().message());
}

Hello SomeHello() {
  Hello hello;
  hello.streams = 4;
  hello.index = 3;
  hello.link = 5;
  hello.incarnation = 6;
  hello.peer = 7;
  hello.listener = 8;
  hello.nonce = RandomNonce();
  return hello;
}

TEST(HandleTest, RoundTrips) {
  ListenAddress a;
  auto& four = reinterpret_cast<sockaddr_in&>(a.address);
  four.sin_family = AF_INET;
  four.sin_port = htons(4711);
  four.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  a.incarnation = 1;
  a.listener = 2;
  a.key = RandomKey();
  a.attempt = 4;
  char bytes[kHandleBytes];
  EncodeAddress(a, bytes);
  const absl::StatusOr<ListenAddress> b = DecodeAddress(bytes);
  ASSERT_TRUE(b.ok()) << b.status();
  EXPECT_EQ(AddressText(b->address), "127.0.0.1:4711");
  EXPECT_EQ(std::tie(b->incarnation, b->listener, b->attempt), std::make_tuple(1u, 2u, 4u));
  EXPECT_EQ(b->key, a.key);
  auto& six = reinterpret_cast<sockaddr_in6&>(a.address);
  six = {};
  six.sin6_family = AF_INET6;
  six.sin6_port = htons(80);
  six.sin6_addr = in6addr_loopback;
  EncodeAddress(a, bytes);
  EXPECT_EQ(AddressText(DecodeAddress(bytes)->address), "[::1]:80");
}

TEST(HandleTest, RefusalNamesTheField) {
  char bytes[kHandleBytes] = {};
  EXPECT_EQ(Why(DecodeAddress(bytes)),
            "malformed handle: magic=0x0: must be 0x484e5752 (the peer uses another protocol)");
  ListenAddress a;
  a.address.ss_family = AF_INET;
  EncodeAddress(a, bytes);
  bytes[6] = 5;
  EXPECT_EQ(Why(DecodeAddress(bytes)), "malformed handle: address family=5: must be 4 or 6");
  bytes[4] = 99;
  EXPECT_EQ(Why(DecodeAddress(bytes)), "malformed handle: version=99: must be 6");
}

TEST(HelloTest, RoundTrips) {
  const Hello hello = SomeHello();
  const absl::StatusOr<Hello> same = DecodeHello(EncodeHello(hello));
  ASSERT_TRUE(same.ok()) << same.status();
  EXPECT_EQ(std::tie(same->streams, same->index, same->link, same->incarnation, same->peer),
            std::tie(hello.streams, hello.index, hello.link, hello.incarnation, hello.peer));
  EXPECT_EQ(same->listener, hello.listener);
  EXPECT_EQ(same->nonce, hello.nonce);
}

TEST(HelloTest, RefusalNamesTheField) {
  Hello hello = SomeHello();
  const std::string bytes = EncodeHello(hello);
  for (size_t n = 0; n < bytes.size(); ++n) {
    EXPECT_EQ(Why(DecodeHello(bytes.substr(0, n))),
              "malformed hello: bytes=" + std::to_string(n) + ": must be 80");
  }
  EXPECT_THAT(Why(DecodeHello(std::string(kHelloBytes, 'x'))), HasSubstr("magic=0x78787878"));
  hello.index = 4;
  EXPECT_EQ(Why(DecodeHello(EncodeHello(hello))),
            "malformed hello: stream=4: must be less than streams=4");
  hello.streams = 65;
  EXPECT_EQ(Why(DecodeHello(EncodeHello(hello))), "malformed hello: streams=65: must be 1 to 64");
}

TEST(HandshakeTest, RefusalsOfAnswersNameTheField) {
  std::string bytes = EncodeChallenge({});
  EXPECT_TRUE(DecodeChallenge(bytes).ok());
  bytes[4] = 4;
  EXPECT_EQ(Why(DecodeChallenge(bytes)), "malformed challenge: answer=4: must be 1 to 3");
  EXPECT_EQ(Why(DecodeChallenge("")), "malformed challenge: bytes=0: must be 72");
  bytes = EncodeProof(Code{});
  EXPECT_TRUE(DecodeProof(bytes).ok());
  bytes[4] = 1;
  EXPECT_EQ(Why(DecodeProof(bytes)), "malformed proof: word 1=1: must be 0");
  bytes = EncodeWelcome();
  EXPECT_TRUE(CheckWelcome(bytes).ok());
  bytes[4] = 2;
  EXPECT_EQ(CheckWelcome(bytes).message(), "malformed welcome: word 1=2: must be 1");
}

// The listener of an idle link accepts an open frame from the right peer for one use only.
TEST(OpenTagTest, DiffersByLinkUseAndKey) {
  const Key key = RandomKey();
  EXPECT_NE(OpenTag(key, 1, 2), OpenTag(key, 1, 3));
  EXPECT_NE(OpenTag(key, 1, 2), OpenTag(key, 2, 2));
  EXPECT_NE(OpenTag(key, 1, 2), OpenTag(RandomKey(), 1, 2));
}

}  // namespace
}  // namespace rewire::net
