"""The guided tour's screen: the inspector's own panes, veiled until the prediction, and a guide beside them."""
