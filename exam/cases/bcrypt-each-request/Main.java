import java.util.Set;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import org.springframework.security.crypto.bcrypt.BCryptPasswordEncoder;

/** An account's page; a visitor shows a password, or what a login with it has left. */
final class Main {
    public static void main(String[] args) throws Exception {
        BCryptPasswordEncoder encoder = new BCryptPasswordEncoder();
        String stored = encoder.encode("correct horse");
        boolean sessions = args[0].equals("session");
        Set<String> known = ConcurrentHashMap.newKeySet();
        String session = UUID.randomUUID().toString();
        if (encoder.matches("correct horse", stored)) {
            known.add(session);
        }
        Web.serve("/account", 8, () -> {
            boolean in = sessions ? known.contains(session) : encoder.matches("correct horse", stored);
            return in ? "balance: 7\n" : "who are you?\n";
        });
    }
}
