import java.io.File;
import java.util.Map;
import java.util.concurrent.Future;
import org.openjdk.jmc.common.item.IItemCollection;
import org.openjdk.jmc.common.unit.IQuantity;
import org.openjdk.jmc.common.util.IPreferenceValueProvider;
import org.openjdk.jmc.flightrecorder.JfrLoaderToolkit;
import org.openjdk.jmc.flightrecorder.rules.IResult;
import org.openjdk.jmc.flightrecorder.rules.IRule;
import org.openjdk.jmc.flightrecorder.rules.ResultToolkit;
import org.openjdk.jmc.flightrecorder.rules.RuleRegistry;
import org.openjdk.jmc.flightrecorder.rules.TypedResult;
import org.openjdk.jmc.flightrecorder.rules.util.RulesToolkit;

/**
 * Puts all rules of JDK Mission Control to a recording, and prints a line for each: identifier, severity, score, and
 * the summary, explanation and solution, with tabs between them. Without an argument it prints the identifiers.
 */
public class Rules {
  public static void main(String[] args) throws Exception {
    if (args.length == 0) {
      for (IRule rule : RuleRegistry.getRules()) {
        System.out.println(rule.getId());
      }
      return;
    }
    IItemCollection events = JfrLoaderToolkit.loadEvents(new File(args[0]));
    Map<IRule, Future<IResult>> results =
        RulesToolkit.evaluateParallel(
            RuleRegistry.getRules(), events, IPreferenceValueProvider.DEFAULT_VALUES, 1);
    for (Map.Entry<IRule, Future<IResult>> entry : results.entrySet()) {
      IResult result = entry.getValue().get();
      IQuantity score = result.getResult(TypedResult.SCORE);
      System.out.println(
          String.join(
              "\t",
              entry.getKey().getId(),
              result.getSeverity().name(),
              score == null ? "0" : Double.toString(score.doubleValue()),
              text(result, result.getSummary()),
              text(result, result.getExplanation()),
              text(result, result.getSolution())));
    }
  }

  /** The message with its values, in one line. */
  private static String text(IResult result, String message) {
    if (message == null) {
      return "";
    }
    String full = ResultToolkit.populateMessage(result, message, false);
    return full.replaceAll("<[^>]*>", " ").replaceAll("\\s+", " ").trim();
  }
}
