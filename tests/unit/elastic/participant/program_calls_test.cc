// Calls into a program that ends.
#include "reconfig/elastic/participant/program_calls.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace rewire::elastic {
namespace {

TEST(ProgramCallsTest, BeginsNoCallAfterClose) {
  ProgramCalls calls;
  { EXPECT_TRUE(ProgramCalls::Call(&calls).allowed()); }
  EXPECT_TRUE(calls.Close(Now()));
  EXPECT_FALSE(ProgramCalls::Call(&calls).allowed());
  EXPECT_TRUE(ProgramCalls::Call(nullptr).allowed());
}

TEST(ProgramCallsTest, CloseWaitsForTheRunningCall) {
  ProgramCalls calls;
  std::atomic<bool> inside{false};
  std::atomic<bool> release{false};
  std::atomic<bool> ended{false};
  std::thread caller([&] {
    const ProgramCalls::Call call(&calls);
    inside = true;
    while (!release) std::this_thread::yield();
    ended = true;
  });
  while (!inside) std::this_thread::yield();
  EXPECT_FALSE(calls.Close(Now() + milliseconds(1)));
  release = true;
  EXPECT_TRUE(calls.Close(Now() + seconds(60)));
  EXPECT_TRUE(ended);
  caller.join();
}

TEST(ProgramCallsTest, ACallThatExitsDoesNotWaitForItself) {
  ProgramCalls calls;
  EXPECT_FALSE(ProgramCalls::Inside());
  const ProgramCalls::Call call(&calls);
  EXPECT_TRUE(ProgramCalls::Inside());
  EXPECT_TRUE(calls.Close(Now() + seconds(60)));
}

}  // namespace
}  // namespace rewire::elastic
