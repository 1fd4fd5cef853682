// NCCL's rules for the interfaces to use.
#include "net_plugin/plugin/interfaces.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

#include <cstdlib>

#include "net_plugin/socket/address.h"

namespace rewire::net {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Interface Make(const std::string& name, int family = AF_INET) {
  Interface i;
  i.name = name;
  i.address.ss_family = static_cast<sa_family_t>(family);
  return i;
}

Interface Make(const std::string& name, const char* address, int bits) {
  Interface i = Make(name);
  inet_pton(AF_INET, address, &reinterpret_cast<sockaddr_in&>(i.address).sin_addr);
  auto& mask = reinterpret_cast<sockaddr_in&>(i.netmask);
  mask.sin_family = AF_INET;
  mask.sin_addr.s_addr = bits == 0 ? 0 : htonl(~uint32_t{0} << (32 - bits));
  return i;
}

const std::vector<Interface> kAll = {Make("lo"),    Make("eth0"),           Make("eth1"),
                                     Make("ib0"),   Make("eth0", AF_INET6), Make("docker0"),
                                     Make("eth10"), Make("six", AF_INET6),  Make("virbr0")};

std::vector<std::string> Names(const std::vector<Interface>& all, std::string_view names,
                               std::string_view family = "") {
  std::vector<std::string> out;
  const auto chosen = Choose(all, {std::string(names), std::string(family), {}});
  EXPECT_TRUE(chosen.ok()) << chosen.status();
  if (!chosen.ok()) return out;
  for (const Interface& i : *chosen) out.push_back(i.name);
  return out;
}

TEST(InterfacesTest, UsesNcclsOrderWithoutName) {
  std::vector<Interface> all = kAll;
  const auto drop = [&](const std::string& prefix) {
    std::erase_if(all, [&](const Interface& i) { return i.name.starts_with(prefix); });
  };
  EXPECT_THAT(Names(all, ""), ElementsAre("ib0"));
  drop("ib");
  EXPECT_THAT(Names(all, ""), ElementsAre("eth0", "eth1", "eth10", "six"));
  drop("eth");
  drop("six");
  EXPECT_THAT(Names(all, ""), ElementsAre("docker0"));
  drop("docker");
  EXPECT_THAT(Names(all, ""), ElementsAre("lo"));
  drop("lo");
  EXPECT_THAT(Names(all, ""), ElementsAre("virbr0"));
  EXPECT_THAT(Names(kAll, "e"), ElementsAre("ib0")) << "NCCL takes one character for none";
}

// A machine's virtual bridges must not be offered to another machine.
TEST(InterfacesTest, PrefersOthersOverVirtualBridge) {
  EXPECT_THAT(Names({Make("virbr0"), Make("lo")}, ""), ElementsAre("lo"));
  EXPECT_THAT(Names({Make("virbr0"), Make("eth0")}, ""), ElementsAre("eth0"));
}

TEST(InterfacesTest, PrefersSubnetOfRoot) {
  const std::vector<Interface> all = {Make("eth0", "10.0.0.1", 8), Make("eth1", "192.168.7.1", 24),
                                      Make("eth2", "192.168.0.1", 16)};
  const auto names = [&](const char* root) {
    std::vector<std::string> out;
    const auto chosen = Choose(all, {"", "", Make("", root, 0).address});
    if (!chosen.ok()) return out;
    for (const Interface& i : *chosen) out.push_back(i.name);
    return out;
  };
  EXPECT_THAT(names("192.168.7.9"), ElementsAre("eth1"));
  EXPECT_THAT(names("192.168.8.9"), ElementsAre("eth2"));
  EXPECT_THAT(names("172.16.0.1"), ElementsAre("eth0", "eth1", "eth2"));
}

TEST(InterfacesTest, ReadsRootFromNcclCommId) {
  setenv("NCCL_COMM_ID", "192.168.7.9:4711", 1);
  unsetenv("NCCL_SOCKET_IFNAME");
  const InterfaceRules rules = RulesFromEnvironment();
  unsetenv("NCCL_COMM_ID");
  setenv("NCCL_SOCKET_IFNAME", "lo", 1);
  ASSERT_TRUE(rules.root.has_value());
  EXPECT_EQ(HostText(*rules.root), "192.168.7.9");
}

TEST(InterfacesTest, LimitsInterfacesToNcclsMaximum) {
  std::vector<Interface> all;
  for (int i = 0; i < 20; ++i) all.push_back(Make("eth" + std::to_string(i)));
  EXPECT_EQ(Names(all, "").size(), kMostInterfaces);
}

TEST(InterfacesTest, PrefixesExactNamesAndExclusion) {
  EXPECT_THAT(Names(kAll, "eth1"), ElementsAre("eth1", "eth10"));
  EXPECT_THAT(Names(kAll, "=eth1"), ElementsAre("eth1"));
  EXPECT_THAT(Names(kAll, "ib,lo"), ElementsAre("lo", "ib0"));
  EXPECT_THAT(Names(kAll, "^eth,docker,lo"), ElementsAre("ib0", "six", "virbr0"));
  EXPECT_THAT(Names(kAll, "^=eth1,lo"),
              ElementsAre("eth0", "ib0", "docker0", "eth10", "six", "virbr0"));
}

TEST(InterfacesTest, SelectsOneAddressFamily) {
  EXPECT_THAT(Names(kAll, "eth0", "AF_INET6"), ElementsAre("eth0"));
  EXPECT_THAT(Names(kAll, "^x", "AF_INET6"), ElementsAre("eth0", "six"));
  EXPECT_THAT(std::string(Choose(kAll, {"", "IPv6", {}}).status().message()),
              HasSubstr("NCCL_SOCKET_FAMILY=IPv6: must be AF_INET or AF_INET6"));
}

TEST(InterfacesTest, ErrorNamesRuleThatMatchesNoInterface) {
  EXPECT_THAT(std::string(Choose(kAll, {"=nothing", "", {}}).status().message()),
              HasSubstr("NCCL_SOCKET_IFNAME="));
  EXPECT_FALSE(Choose({}, {}).ok());
}

TEST(InterfacesTest, ListsInterfacesOfThisMachine) {
  const auto all = ListInterfaces();
  ASSERT_TRUE(all.ok());
  EXPECT_TRUE(
      std::any_of(all->begin(), all->end(), [](const Interface& i) { return i.name == "lo"; }));
}

}  // namespace
}  // namespace rewire::net
