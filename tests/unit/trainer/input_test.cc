// The command line and the training text: each error is named.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <fstream>

#include "bench/trainer/args.h"
#include "bench/trainer/rendezvous.h"
#include "bench/trainer/sampler.h"

namespace rewire::trainer {
namespace {

using ::testing::HasSubstr;

std::string Error(const std::vector<std::string>& arguments) {
  const auto args = ParseArgs(arguments);
  return args.ok() ? "" : std::string(args.status().message());
}

TEST(Args, TakesBothFormsOfAValue) {
  const auto args = ParseArgs(std::vector<std::string>{"--steps", "7", "--zero=1", "--exact"});
  ASSERT_TRUE(args.ok());
  EXPECT_EQ(args->steps, 7u);
  EXPECT_EQ(args->zero, 1);
  EXPECT_TRUE(args->exact);
  EXPECT_EQ(args->LastStep(), 7u);
}

TEST(Args, StopAfterEndsBeforeSteps) {
  EXPECT_EQ(ParseArgs(std::vector<std::string>{"--steps=9", "--stop-after=4"})->LastStep(), 4u);
  EXPECT_EQ(ParseArgs(std::vector<std::string>{"--steps=9", "--stop-after=40"})->LastStep(), 9u);
}

TEST(Args, RefusesByName) {
  EXPECT_THAT(Error({"--stepz", "7"}), HasSubstr("--stepz"));
  EXPECT_THAT(Error({"stray"}), HasSubstr("stray"));
  EXPECT_THAT(Error({"--steps"}), HasSubstr("--steps"));
  EXPECT_THAT(Error({"--steps", "0"}), HasSubstr("not in range 1 to 1000000000"));
  EXPECT_THAT(Error({"--steps", "7x"}), HasSubstr("7x"));
  EXPECT_THAT(Error({"--steps", ""}), HasSubstr("--steps"));
  EXPECT_THAT(Error({"--zero", "2"}), HasSubstr("--zero: Value 2 not in range 0 to 1"));
  EXPECT_THAT(Error({"--lr", "nan"}), HasSubstr("--lr"));
  EXPECT_THAT(Error({"--dropout", "-0.1"}), HasSubstr("--dropout"));
  EXPECT_THAT(Error({"--exact=maybe"}), HasSubstr("--exact"));
  EXPECT_THAT(Error({"--seed", "1", "--seed", "2"}), HasSubstr("--seed"));
  EXPECT_THAT(Error({"--save", ""}), HasSubstr("--save"));
  EXPECT_THAT(Error({"--width", "30"}), HasSubstr("--heads 4"));
}

TEST(Sampler, WindowsFollowSeedStepAndIndex) {
  const auto a = Sampler::Open("", 32, 1);
  const auto b = Sampler::Open("", 32, 2);
  ASSERT_TRUE(a.ok()) << a.status();
  EXPECT_EQ(a->Window(3, 4).size(), 33u);
  EXPECT_EQ(a->Window(3, 4).data(), a->Window(3, 4).data());
  EXPECT_NE(a->Window(3, 4).data(), a->Window(3, 5).data());
  EXPECT_NE(a->Window(3, 4).data(), a->Window(4, 4).data());
  EXPECT_NE(a->Window(3, 4).data() - a->Window(0, 0).data(),
            b->Window(3, 4).data() - b->Window(0, 0).data());
}

TEST(Sampler, NamesWhatIsWrongWithTheFile) {
  EXPECT_THAT(std::string(Sampler::Open("/nonexistent/text", 32, 1).status().message()),
              HasSubstr("/nonexistent/text: No such file"));
  EXPECT_THAT(std::string(Sampler::Open("/", 32, 1).status().message()), HasSubstr("directory"));
  char path[] = "/tmp/rewire_text_XXXXXX";
  const int fd = mkstemp(path);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(write(fd, "0123456789", 10), 10);
  close(fd);
  EXPECT_THAT(std::string(Sampler::Open(path, 10, 1).status().message()),
              HasSubstr("has 10 bytes; --context 10 needs at least 11"));
  const auto whole = Sampler::Open(path, 9, 1);
  ASSERT_TRUE(whole.ok());
  EXPECT_EQ(whole->Window(0, 0)[9], '9');
  unlink(path);
}

TEST(Place, RefusesAWrongEnvironment) {
  ASSERT_EQ(setenv("WORLD_SIZE", "2", 1), 0);
  ASSERT_EQ(setenv("RANK", "2", 1), 0);
  unsetenv("MASTER_PORT");
  EXPECT_THAT(std::string(Place::FromEnvironment().status().message()), HasSubstr("RANK='2'"));
  ASSERT_EQ(setenv("RANK", "1", 1), 0);
  EXPECT_THAT(std::string(Place::FromEnvironment().status().message()), HasSubstr("MASTER_PORT"));
  unsetenv("WORLD_SIZE");
  unsetenv("RANK");
}

}  // namespace
}  // namespace rewire::trainer
