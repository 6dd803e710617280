//! How well faults were predicted, in words.

use yonder_load::Predicted;

/// One line; `None` where nothing was predicted.
pub(super) fn words(predicted: &Predicted) -> Option<String> {
    let percent = predicted.right_percent()?;
    let Predicted { hits_right, hits_wrong, faults_right, faults_wrong } = predicted;
    let all = hits_right + hits_wrong + faults_right + faults_wrong;
    Some(format!(
        "{percent:.2} % of {all} predictions were right; {faults_wrong} hits were taken for faults, {hits_wrong} faults for \
         hits"
    ))
}
