// NCCL's rules for the interfaces to use.
#include "net_plugin/core/interfaces.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

const std::vector<Interface> kAll = {Make("lo"),    Make("eth0"),           Make("eth1"),
                                     Make("ib0"),   Make("eth0", AF_INET6), Make("docker0"),
                                     Make("eth10"), Make("six", AF_INET6)};

std::vector<std::string> Names(const std::vector<Interface>& all, std::string_view names,
                               std::string_view family = "") {
  std::vector<std::string> out;
  const auto chosen = Choose(all, names, family);
  EXPECT_TRUE(chosen.ok()) << chosen.status();
  if (!chosen.ok()) return out;
  for (const Interface& i : *chosen) out.push_back(i.name);
  return out;
}

TEST(InterfacesTest, WithoutANameInNcclsOrder) {
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
}

TEST(InterfacesTest, PrefixesExactNamesAndExclusion) {
  EXPECT_THAT(Names(kAll, "eth1"), ElementsAre("eth1", "eth10"));
  EXPECT_THAT(Names(kAll, "=eth1"), ElementsAre("eth1"));
  EXPECT_THAT(Names(kAll, "ib,lo"), ElementsAre("lo", "ib0"));
  EXPECT_THAT(Names(kAll, "^eth,docker,lo"), ElementsAre("ib0", "six"));
  EXPECT_THAT(Names(kAll, "^=eth1,lo"), ElementsAre("eth0", "ib0", "docker0", "eth10", "six"));
}

TEST(InterfacesTest, OneFamily) {
  EXPECT_THAT(Names(kAll, "eth0", "AF_INET6"), ElementsAre("eth0"));
  EXPECT_THAT(Names(kAll, "^x", "AF_INET6"), ElementsAre("eth0", "six"));
  EXPECT_THAT(std::string(Choose(kAll, "", "IPv6").status().message()),
              HasSubstr("NCCL_SOCKET_FAMILY=IPv6: AF_INET or AF_INET6"));
}

TEST(InterfacesTest, NoneIsAnErrorThatNamesTheRule) {
  EXPECT_THAT(std::string(Choose(kAll, "=nothing", "").status().message()),
              HasSubstr("NCCL_SOCKET_IFNAME="));
  EXPECT_FALSE(Choose({}, "", "").ok());
}

TEST(InterfacesTest, ThisMachinesAreListed) {
  const auto all = ListInterfaces();
  ASSERT_TRUE(all.ok());
  EXPECT_TRUE(
      std::any_of(all->begin(), all->end(), [](const Interface& i) { return i.name == "lo"; }));
}

}  // namespace
}  // namespace rewire::net
