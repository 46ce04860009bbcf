// Lets a device run the best token before the host has seen it, for no longer than a scope.
#pragma once

#include "assay/context.h"

namespace assay::engine {

class BestFollows {
 public:
  explicit BestFollows(Context& context) : context_(context) {}
  ~BestFollows() { set(false); }
  BestFollows(const BestFollows&) = delete;
  BestFollows& operator=(const BestFollows&) = delete;

  // Whether the token that is best after the next run will most likely be run after it.
  void set(bool follows) {
    if (follows != follows_) follows_ = context_.set_follows_best(follows) && follows;
  }

 private:
  Context& context_;
  bool follows_ = false;
};

}  // namespace assay::engine
