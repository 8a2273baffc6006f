// Everything that the file of a model needs.
#pragma once

#include "model/model.h"
#include "model/nn/layers.h"
#include "model/ops/attention.h"
#include "model/ops/cross_entropy.h"
#include "model/ops/elementwise.h"
#include "model/ops/embedding.h"
#include "model/ops/linear.h"
#include "model/ops/norm.h"
#include "model/registry.h"
