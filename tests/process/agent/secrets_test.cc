// Tests that a job reveals no key and follows no link at file names that other users can guess.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "reconfig/auth/key.h"
#include "reconfig/elastic/leader/transition.h"
#include "tests/process/agent/job.h"

namespace rewire {
namespace {

namespace fs = std::filesystem;

std::string BytesOf(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

// Returns the path of the file with this name in the only job's folder; empty: no such file.
std::string InJobsFolder(const Job& job, const std::string& name) {
  for (const auto& entry : fs::directory_iterator(job.folder() / "run")) {
    if (fs::exists(entry.path() / name)) return entry.path() / name;
  }
  return "";
}

// Returns eight bytes of a key: raw, as hexadecimal digits of either case, as numbers of JSON.
std::vector<std::string> FormsOf(const Key& key) {
  const std::string hex = HexOfKey(key).substr(0, 16);
  std::string upper = hex;
  std::string numbers;
  for (char& c : upper) c = static_cast<char>(toupper(c));
  for (size_t i = 0; i < 8; ++i) numbers += std::to_string(key.bytes[i]) + ",";
  return {std::string(key.view().substr(0, 8)), hex, upper, numbers};
}

TEST(SecretsTest, StatusMetricsLogsAndTracesHoldNoKey) {
  setenv("REWIRE_LOG", "debug", 1);
  Job job(2, 4);
  unsetenv("REWIRE_LOG");
  const std::string secret = BytesOf(InJobsFolder(job, "world.secret"));
  ASSERT_EQ(secret.size(), kKeyBytes);
  const Key job_key = KeyOfBytes(secret);
  EXPECT_EQ(job.Ask("resize", {"3"}).status, 0);
  // The store holds the epoch's key: the test searches for keys that the job really uses.
  const Key epoch_key = elastic::EpochKey(job_key, 2);
  EXPECT_NE(BytesOf(InJobsFolder(job, "world")).find(epoch_key.view()), std::string::npos);
  std::vector<Key> keys = {job_key, elastic::NamesKey(job_key), elastic::EpochKey(job_key, 1),
                           epoch_key};
  const int pid = job.Status()["world"]["members"][0]["pid"].get<int>();
  const std::string environment = BytesOf("/proc/" + std::to_string(pid) + "/environ");
  const std::string name = "REWIRE_NET_KEY=";
  const size_t at = environment.find(name);
  ASSERT_NE(at, std::string::npos);
  const std::string digits(environment.c_str() + at + name.size());
  ASSERT_TRUE(KeyOfHex(digits).has_value());
  keys.push_back(*KeyOfHex(digits));

  std::string all;
  for (const char* command : {"status", "metrics", "trace"}) {
    for (const char* form : {"", "--json"}) {
      const std::vector<std::string> arguments =
          *form == '\0' ? std::vector<std::string>{} : std::vector<std::string>{form};
      const CommandResult r = job.Ask(command, arguments);
      all += r.out + r.err;
    }
  }
  EXPECT_NE(all.find("\"counters\""), std::string::npos);
  const CommandResult end = job.Finish();
  EXPECT_EQ(end.status, 0) << end.err;
  all += end.out + end.err;
  const std::string trace = BytesOf(job.folder() / "traces/epoch-2.json");
  EXPECT_NE(trace, "");
  all += trace;
  for (const Key& key : keys) {
    for (const std::string& form : FormsOf(key)) EXPECT_EQ(all.find(form), std::string::npos);
  }
}

TEST(SecretsTest, ATraceReplacesALinkOfItsNameAndDoesNotFollowIt) {
  Job job(1, 2);
  const std::string target = job.folder() / "target";
  const std::string trace = job.folder() / "traces/epoch-2.json";
  std::ofstream(target) << "precious";
  fs::create_symlink(target, trace);
  fs::create_symlink(target, trace + ".new");
  EXPECT_EQ(job.Ask("resize", {"2"}).status, 0);
  EXPECT_EQ(job.Finish().status, 0);
  EXPECT_EQ(BytesOf(target), "precious");
  EXPECT_FALSE(fs::is_symlink(trace));
  EXPECT_THAT(BytesOf(trace), ::testing::HasSubstr("traceEvents"));
  EXPECT_FALSE(fs::exists(fs::symlink_status(trace + ".new")));
}

}  // namespace
}  // namespace rewire
