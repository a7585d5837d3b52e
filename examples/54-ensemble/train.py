"""Many small models on parts of a table, which vote; with a Spark session the parts are the cluster's, without one this
machine's processes fit them.

python examples/54-ensemble/train.py            # on this machine; with an argument, as `spark`, on a local Spark
"""

import sys

import numpy as np
import pandas as pd
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier

import hora.spark


def booster(columns):
    """A base may be a function: a mapping from column to NumPy array in, a fitted model out."""
    import xgboost

    data = xgboost.DMatrix(columns["features"], label=columns["label"])
    return xgboost.train({"objective": "multi:softprob", "num_class": 10, "nthread": 1}, data, 20)


def main():
    images, labels = load_digits(return_X_y=True)
    table = pd.DataFrame({"features": images.tolist(), "label": labels}).sample(frac=1, random_state=0)
    train, test = table[:1347], table[1347:]
    truth = test.label.to_numpy()
    given = train
    if len(sys.argv) > 1:
        from pyspark.sql import SparkSession

        spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
        given = spark.createDataFrame(train.values.tolist(), "features array<double>, label long").cache()

    forest = RandomForestClassifier(20, random_state=0)
    x = np.array(train.features.tolist())
    print(
        f"one forest on all rows        {(forest.fit(x, train.label).predict(np.array(test.features.tolist())) == truth).mean():.3f}"
    )
    for base, how in (
        (forest, {"by": "rows"}),
        (forest, {"by": "columns"}),
        (forest, {"by": "both"}),
        (booster, {"by": "rows", "vote": "hard"}),
    ):
        model = hora.spark.PartitionEnsemble(base, n=4, **how).fit(given)
        what = f"{getattr(base, '__name__', 'forest')} by {how['by']}, {how.get('vote', 'soft')} votes"
        print(
            f"4 models, {what:35} {(model.predict(test) == truth).mean():.3f}   rows {[r['rows'] for r in model.report]}"
        )


if __name__ == "__main__":
    main()
