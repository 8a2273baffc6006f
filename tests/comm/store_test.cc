#include "comm/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "comm/rendezvous.h"
#include "core/error.h"
#include "tests/comm/process_ranks.h"

namespace zpp {
namespace {

using ::testing::HasSubstr;
using testing::ScratchDirectory;

/// "timeout: text" of what `body` throws, or "".
std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return std::string(code_name(error.code())) + ": " + error.what();
  }
  return "";
}

/// One store of each kind, with everything it stands on.
class AnyStore : public ::testing::TestWithParam<const char*> {
 protected:
  AnyStore() {
    const std::string kind = GetParam();
    if (kind == "memory") store_ = make_memory_store();
    if (kind == "file") store_ = make_file_store(scratch_.path() / "job", "secret");
    if (kind == "tcp") {
      server_ = std::make_unique<TcpStoreServer>(uint16_t{0}, "secret");
      store_ = connect_tcp_store("localhost", server_->port(), "secret", Millis(5000));
    }
  }

  ScratchDirectory scratch_;
  std::unique_ptr<TcpStoreServer> server_;
  std::unique_ptr<Store> store_;
};

INSTANTIATE_TEST_SUITE_P(Kinds, AnyStore, ::testing::Values("memory", "file", "tcp"),
                         [](const auto& param) { return std::string(param.param); });

TEST_P(AnyStore, GivesBackWhatWasSet) {
  const std::string value("a\0b\n\xff", 5);
  store_->set("ucx/0/1", value);
  store_->set("ucx/0/10", "");
  EXPECT_EQ(store_->get("ucx/0/1", Millis(0)), value);
  EXPECT_EQ(store_->get("ucx/0/10", Millis(0)), "");
  store_->set("ucx/0/1", "new");
  EXPECT_EQ(store_->get("ucx/0/1", Millis(0)), "new");
}

TEST_P(AnyStore, SaysWhichKeyDidNotCome) {
  const std::string error = error_of([&] { store_->get("weather", Millis(30)); });
  EXPECT_THAT(error, HasSubstr("timeout: "));
  EXPECT_THAT(error, HasSubstr("'weather'"));
  store_->set("weather", "sun");
  EXPECT_EQ(store_->get("weather", Millis(0)), "sun");
}

TEST_P(AnyStore, MeetsWithItself) {
  const Rendezvous place = meet(*store_, 0, 1, {}, Millis(1000));
  EXPECT_EQ(place.world(), 1);
  EXPECT_EQ(place.pids, std::vector<int64_t>{::getpid()});
  EXPECT_THAT(place.describe(0), HasSubstr(", pid " + std::to_string(::getpid())));
}

TEST(MemoryStore, WakesWhoeverWaits) {
  const std::unique_ptr<Store> store = make_memory_store();
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    store->set("key", "value");
  });
  EXPECT_EQ(store->get("key", Millis::max()), "value");
  later.join();
}

TEST(FileStore, TakesAnyKeyAndKeepsItsFilesApart) {
  const ScratchDirectory scratch;
  const auto store = make_file_store(scratch.path(), "secret");
  for (const char* key : {"token", "../token", "a/b", "a%2fb", ""}) store->set(key, key);
  for (const char* key : {"token", "../token", "a/b", "a%2fb", ""}) {
    EXPECT_EQ(store->get(key, Millis(0)), key);
  }
}

TEST(FileStore, RefusesTheDirectoryOfAnotherJob) {
  const ScratchDirectory scratch;
  const auto first = make_file_store(scratch.path(), "one");
  EXPECT_EQ(error_of([&] { make_file_store(scratch.path(), "one"); }), "");
  const std::string error = error_of([&] { make_file_store(scratch.path(), "two"); });
  EXPECT_THAT(error, HasSubstr("invalid argument: "));
  EXPECT_THAT(error, HasSubstr(scratch.path().string()));
}

TEST(Meet, CollectsAllRanksInOrder) {
  const std::unique_ptr<Store> store = make_memory_store();
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 4; ++rank) {
    ranks.emplace_back([&store, rank] {
      const int nested[] = {2, 4};
      const Rendezvous place = meet(*store, rank, 4, nested, Millis(5000));
      EXPECT_EQ(place.rank, rank);
      EXPECT_EQ(place.world(), 4);
      EXPECT_EQ(place.topology.levels(), 2);
      EXPECT_EQ(place.topology.group(1, rank).front(), rank / 2 * 2);
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

TEST(Meet, ListsTheRanksThatAreMissing) {
  const std::unique_ptr<Store> store = make_memory_store();
  EXPECT_THAT(error_of([&] { meet(*store, 1, 2, {}, Millis(10)); }), HasSubstr("1 of 2"));
  const std::string error = error_of([&] { meet(*store, 1, 5, {}, Millis(10)); });
  EXPECT_THAT(error, HasSubstr("timeout: "));
  EXPECT_THAT(error, HasSubstr("4 of 5 ranks"));
  EXPECT_THAT(error, HasSubstr("ranks 0, 2, 3, 4;"));
}

TEST(ExchangeTexts, GivesAllToEachAndNamesWhoIsMissing) {
  const std::unique_ptr<Store> store = make_memory_store();
  store->set("rendezvous/1", "17\nother\nid 3");
  const Rendezvous place = meet(*store, 0, 2, {}, Millis(1000));
  const std::string error =
      error_of([&] { exchange_texts(*store, place, "card", "mine", Millis(10)); });
  EXPECT_THAT(error, HasSubstr("timeout: rank 0 (host "));
  EXPECT_THAT(error, HasSubstr("waiting for rank 1 (host other, pid 17) to set 'card/1'"));
  store->set("card/1", "theirs");
  EXPECT_EQ(exchange_texts(*store, place, "card", "mine", Millis(10)),
            (std::vector<std::string>{"mine", "theirs"}));
}

TEST(Meet, TellsMachinesOfOneNameApart) {
  const std::unique_ptr<Store> store = make_memory_store();
  store->set("rendezvous/1", "17\nother\nid 3");
  store->set("rendezvous/2", "18\ntwin\nid 1");
  store->set("rendezvous/3", "19\ntwin\nid 2");
  const int nested[] = {4};
  const Rendezvous place = meet(*store, 0, 4, nested, Millis(1000));
  EXPECT_EQ(place.hosts[1], "other");
  EXPECT_EQ(place.hosts[2], "twin#1");
  EXPECT_EQ(place.hosts[3], "twin#2");
  EXPECT_EQ(place.describe(3), "rank 3 (host twin#2, pid 19)");
}

TEST(Meet, RefusesRanksAndGroupsThatDoNotExist) {
  const std::unique_ptr<Store> store = make_memory_store();
  EXPECT_THAT(error_of([&] { meet(*store, 2, 2, {}, Millis(10)); }), HasSubstr("rank 2 of 2"));
  const int nested[] = {2, 8};
  EXPECT_THAT(error_of([&] { meet(*store, 0, 4, nested, Millis(10)); }),
              HasSubstr("up to 8 ranks were asked for but there are 4"));
}

}  // namespace
}  // namespace zpp
